/**
 * The epoch that a writer proposes for itself: the time, and twenty random bits below it.
 *
 * The writer does not use 0, for which the service assigns the highest epoch plus 1. An unanswered
 * call may still reach the service after the next call. With 0 that late call would take an epoch
 * above ours, and so replace the writer by its own old call. With a fixed number the late call has
 * the same epoch, which does no harm (after `STREAM_REPLACED` the stream is opened again).
 *
 * A later process has a later time, so it fences the earlier one. When clocks disagree, or a writer
 * chose larger numbers by hand, the service answers the first Open with STALE_EPOCH. Only then the
 * writer asks for the highest plus 1.
 */
import type { Clock } from "../../base/clock.ts";

const MICROS_PER_MS = 1_000n;
/** Two processes that start in the same millisecond must not share an epoch. */
const RANDOM_BITS = 20n;

/** Below 2^63, the highest that the service stores, until the year 2248. */
export function proposedEpoch(clock: Clock): bigint {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  const low = BigInt(random) & ((1n << RANDOM_BITS) - 1n);
  return ((clock.nowMicros() / MICROS_PER_MS) << RANDOM_BITS) | low;
}
