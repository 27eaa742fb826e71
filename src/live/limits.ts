import assert from "node:assert/strict";
import type { Backoff } from "@session-ledger/base/backoff";

/** Starting points, not measured against others; watchers, windows and the poll are configuration. */
export const LIVE_LIMITS = {
  /** Above this number a watch is refused with TOO_MANY_WATCHERS. */
  watchersMax: 4_096,
  /** Watchers of one session, both streams together. */
  watchersPerSessionMax: 512,
  /** Newest rows held of one stream of one session. */
  windowRowsMax: 512,
  windowBytesMax: 1_048_576,
  /** Bytes of all windows together. Above it, the window with the oldest append is emptied. */
  windowsBytesMax: 67_108_864,
  /**
   * Rows of one delivery and of one read of the table. An idle watcher may hold that many, so they are
   * small: the bytes held for callers have a limit. Rows of 700 bytes fit; with 262,144 bytes a replay of
   * 100,000 rows took 1.2 to 2.5 times as long.
   */
  pageRowsMax: 512,
  pageBytesMax: 655_360,
  /**
   * Pages read from the table at once; further reads wait for their turn. Half of the default pool: many
   * watchers that return after a restart must leave room for pushes.
   */
  pageReadsMax: 5,
  /** A read without an answer by then has failed; above the database's statement timeout. */
  readLimitMs: 10_000,
  /** Sessions in one query for heads on behalf of starting watches. */
  headIdsMax: 1_000,
  headPollIntervalMs: 1_000,
};

export type LiveLimits = Readonly<typeof LIVE_LIMITS>;

/** The delays between tries of a failed read. */
export const READ_RETRY: Backoff = { minMs: 50, maxMs: 5_000 };

export function checkLiveLimits(limits: LiveLimits): void {
  for (const [name, limit] of Object.entries(limits)) assert(limit >= 1, `${name} is ${limit}`);
  assert(limits.watchersPerSessionMax <= limits.watchersMax);
  assert(limits.windowBytesMax <= limits.windowsBytesMax); // One window must not empty itself.
}
checkLiveLimits(LIVE_LIMITS);
