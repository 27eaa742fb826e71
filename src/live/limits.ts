import assert from "node:assert/strict";
import type { Backoff } from "../base/backoff.ts";

export interface LiveLimits {
  /** Above it a watch is refused with TOO_MANY_WATCHERS. */
  readonly watchersMax: number;
  /** Of one session, both streams together. */
  readonly watchersPerSessionMax: number;
  /** Newest rows held of one stream of a session. */
  readonly windowRowsMax: number;
  readonly windowBytesMax: number;
  /** Of all windows together; above it the one that was appended to the longest ago is emptied. */
  readonly windowsBytesMax: number;
  /** One delivery to a watcher, one read of the table: what a watcher that stands still can hold. */
  readonly pageRowsMax: number;
  readonly pageBytesMax: number;
  /** Pages asked of the table at once; further ones wait their turn. */
  readonly pageReadsMax: number;
  /** A read that is not answered by then has failed; above the database's statement timeout. */
  readonly readLimitMs: number;
  /** Sessions in one query for heads on behalf of watches that begin. */
  readonly headIdsMax: number;
  readonly headPollIntervalMs: number;
}

/** Starting points, not measured against others; watchers, windows and the poll are configuration. */
export const LIVE_LIMITS: LiveLimits = {
  watchersMax: 4_096,
  watchersPerSessionMax: 512,
  windowRowsMax: 512,
  windowBytesMax: 1_048_576,
  windowsBytesMax: 67_108_864,
  // Small, because every watcher that stands still may hold one: 4,096 times this is 512 MiB.
  pageRowsMax: 256,
  pageBytesMax: 131_072,
  // Half of the default pool: a crowd that comes back after a restart must leave room for pushes.
  pageReadsMax: 5,
  readLimitMs: 10_000,
  headIdsMax: 1_000,
  headPollIntervalMs: 1_000,
};

/** Between tries of a read that failed. */
export const READ_RETRY: Backoff = { minMs: 50, maxMs: 5_000 };

export function checkLiveLimits(limits: LiveLimits): void {
  for (const [name, limit] of Object.entries(limits)) assert(limit >= 1, `${name} is ${limit}`);
  assert(limits.watchersPerSessionMax <= limits.watchersMax);
  assert(limits.windowBytesMax <= limits.windowsBytesMax); // One window must not empty itself.
}
checkLiveLimits(LIVE_LIMITS);
