import assert from "node:assert/strict";

/** How long each step may take. Injected, so that a test does not wait as long as a slow disk may need. */
export interface EmbeddedLimits {
  /** For the file system of DATA_DIR to answer: a mount can hang. */
  readonly dataDirMs: number;
  /** For initdb, which syncs a new cluster of about 40 MB. */
  readonly initMs: number;
  /** From spawn to "ready": includes the replay of at most max_wal_size after a crash. */
  readonly startMs: number;
  /** A fast stop rolls open transactions back and writes a checkpoint; past this it is not waited for. */
  readonly fastStopMs: number;
  /** An immediate stop writes nothing; the next start replays the log instead. No row is lost by it. */
  readonly immediateStopMs: number;
  /** After SIGKILL, until the kernel has taken the process away. */
  readonly killMs: number;
  /** Between a death of the server and its restart; doubles with every failed restart. */
  readonly restartDelayMsMin: number;
  readonly restartDelayMsMax: number;
  /** How often an owner marks its lock, for those who cannot see its process; lock.ts. */
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
