/**
 * A token bucket as one number and pure functions. The number is the time when the bucket is full
 * again. A bucket holds the inflow of BURST_MS. Amounts are given as the time they take to flow in
 * (`costMs`), so no timer has to fill the bucket.
 *
 *                    ◄──────── BURST_MS ────────►
 *   ── debt ────────┤ empty                 full ├── forgotten: a full one has no record
 *                   now + BURST_MS            now          ◄── fullAtMs
 *
 * Two ways to take from a bucket:
 *
 *   a push    takes only amounts that are in the bucket. Over any time, the grants are at most the
 *             inflow plus one bucket. A push larger than a bucket is granted when the bucket is
 *             full, and leaves a debt; otherwise that push could never be sent.
 *   a stream  takes every message, because the message has arrived. The stream then waits until
 *             half of the bucket is there again, and continues even if other callers took from it
 *             meanwhile. So streams leave the other half to pushes, which would otherwise find it
 *             always empty, and pushes cannot starve streams.
 */

/** The capacity of a bucket: the inflow of one second. */
export const BURST_MS = 1_000;
/** The part of a bucket that streams leave to pushes. */
const RESERVE_MS = BURST_MS / 2;
/** Sums of floating-point times round; a bucket this near to the amount has enough. */
const SLACK_MS = 1e-3;

/** The wait until a push is granted, if no other push takes anything meanwhile; 0: granted now. */
export function pushWaitMs(fullAtMs: number, costMs: number, nowMs: number): number {
  const missingMs = Math.max(0, fullAtMs - nowMs) + Math.min(costMs, BURST_MS) - BURST_MS;
  return missingMs <= SLACK_MS ? 0 : missingMs;
}

/** The wait of a stream before its next message. */
export function streamWaitMs(fullAtMs: number, nowMs: number): number {
  return Math.max(0, fullAtMs - nowMs - (BURST_MS - RESERVE_MS));
}

/** The time when the bucket is full again, after an amount was taken. */
export function fullAfter(fullAtMs: number, costMs: number, nowMs: number): number {
  return Math.max(fullAtMs, nowMs) + costMs;
}
