/**
 * A token bucket, purely, as one number: when it is full again. It holds what flows in within BURST_MS,
 * so amounts are told in the time that they take to flow in (`costMs`), and nobody has to fill it.
 *
 *                    ◄──────── BURST_MS ────────►
 *   ── debt ────────┤ empty                 full ├── forgotten: a full one says nothing
 *                   now + BURST_MS            now          ◄── fullAtMs
 *
 * Two ways to take from it:
 *
 *   a push    only what is there. Over any time no more is granted than what flows in meanwhile, and a
 *             bucket. What is more than a bucket is granted when it is full, and leaves a debt, or it
 *             could never be sent.
 *   a stream  whatever there is, because it has come. It then waits until half of the bucket is there
 *             again, and goes on whatever others took meanwhile. So streams leave the other half to
 *             pushes, which would else find an empty bucket for ever, and pushes cannot starve streams.
 */

/** Of what flows in, a bucket holds so much: one second's worth. */
export const BURST_MS = 1_000;
/** A stream leaves this to pushes. */
const RESERVE_MS = BURST_MS / 2;
/** Sums of times round: what came that near is there. */
const SLACK_MS = 1e-3;

/** How long a push waits until it is granted, if nobody else takes anything meanwhile; 0: it is. */
export function pushWaitMs(fullAtMs: number, costMs: number, nowMs: number): number {
  const missingMs = Math.max(0, fullAtMs - nowMs) + Math.min(costMs, BURST_MS) - BURST_MS;
  return missingMs <= SLACK_MS ? 0 : missingMs;
}

/** How long a stream waits with what comes next. */
export function streamWaitMs(fullAtMs: number, nowMs: number): number {
  return Math.max(0, fullAtMs - nowMs - (BURST_MS - RESERVE_MS));
}

/** When it is full again, after something was taken. */
export function fullAfter(fullAtMs: number, costMs: number, nowMs: number): number {
  return Math.max(fullAtMs, nowMs) + costMs;
}
