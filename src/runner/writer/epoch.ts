/**
 * The epoch that a writer proposes for itself: the time, and twenty random bits below it.
 *
 * Not 0, for which the service gives the highest plus 1. A call of ours that nobody answered may still
 * reach the service after the next one did; with 0 it would take an epoch above ours then, and so
 * replace a writer by its own ghost. With a number of our own it is the same epoch again, which does
 * no harm (`STREAM_REPLACED` is opened again).
 *
 * A later process has a later time, so it fences the one before it. Where clocks disagree, or a writer
 * chose larger numbers by hand, the service says STALE_EPOCH to the first Open, and only then it is
 * asked for the highest plus 1.
 */
import type { Clock } from "../../base/clock.ts";

const MICROS_PER_MS = 1_000n;
/** Two processes that begin in the same millisecond must not share an epoch. */
const RANDOM_BITS = 20n;

/** Below 2^63, the highest that the service stores, until the year 2248. */
export function proposedEpoch(clock: Clock): bigint {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  const low = BigInt(random) & ((1n << RANDOM_BITS) - 1n);
  return ((clock.nowMicros() / MICROS_PER_MS) << RANDOM_BITS) | low;
}
