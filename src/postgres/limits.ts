import assert from "node:assert/strict";

/**
 * The limits of each step. Injected, so that a test does not wait as long as a slow disk may need.
 */
export interface EmbeddedLimits {
  /** For an answer from the file system of DATA_DIR: a mount can hang. */
  readonly dataDirMs: number;
  /** For initdb, which syncs a new cluster of about 40 MB. */
  readonly initMs: number;
  /** From spawn to "ready": includes the replay of at most max_wal_size after a crash. */
  readonly startMs: number;
  /**
   * A fast stop rolls open transactions back and writes a checkpoint; after this time an immediate
   * stop follows.
   */
  readonly fastStopMs: number;
  /** An immediate stop writes nothing; the next start replays the log instead. No row is lost. */
  readonly immediateStopMs: number;
  /** After SIGKILL, until the kernel has removed the process. */
  readonly killMs: number;
  /** Between a death of the server and its restart; doubles with every failed restart. */
  readonly restartDelayMsMin: number;
  readonly restartDelayMsMax: number;
  /**
   * The interval at which an owner marks its lock, for starts that cannot see its process; lock.ts.
   */
  readonly heartbeatMs: number;
}

export const EMBEDDED_LIMITS: EmbeddedLimits = {
  dataDirMs: 20_000,
  initMs: 60_000,
  startMs: 300_000,
  fastStopMs: 10_000,
  immediateStopMs: 6_000, // Longer than the 5 s after which a postmaster kills a backend that ignores it.
  killMs: 5_000,
  restartDelayMsMin: 100,
  restartDelayMsMax: 2_000,
  heartbeatMs: 2_000,
};

assert(EMBEDDED_LIMITS.restartDelayMsMin <= EMBEDDED_LIMITS.restartDelayMsMax);
assert(EMBEDDED_LIMITS.immediateStopMs > 5_000); // The postmaster's own SIGKILL_CHILDREN_AFTER_SECS.
