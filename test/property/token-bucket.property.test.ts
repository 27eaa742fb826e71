/**
 * However pushes and streams come, no more is granted than the rate allows. Method: play them against
 * one bucket, keep what was granted and when, and look at every interval between two of these moments.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { BURST_MS, fullAfter, pushWaitMs, streamWaitMs } from "../../src/ingest/rate-limits.ts";
import { properties } from "../support/random.ts";

interface Granted {
  readonly atMs: number;
  readonly costMs: number;
}

/** The most that was granted above what flowed in, over all intervals from one grant to another. */
function mostAtOnceMs(granted: readonly Granted[]): number {
  let most = 0;
  for (const [from, first] of granted.entries()) {
    let sum = 0;
    for (const { atMs, costMs } of granted.slice(from)) {
      sum += costMs;
      most = Math.max(most, sum - (atMs - first.atMs));
    }
  }
  return most;
}

const ROUNDING_MS = 0.01;
const pauseMs = fc.oneof(
  { weight: 3, arbitrary: fc.double({ min: 0, max: 40, noNaN: true }) },
  fc.double({ min: 0, max: 3_000, noNaN: true }),
);
const costMs = fc.oneof(
  { weight: 4, arbitrary: fc.double({ min: 0.001, max: 100, noNaN: true }) },
  fc.double({ min: 0.001, max: BURST_MS, noNaN: true }),
);

test("pushes get in any interval at most its rate and one bucket", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(pauseMs, costMs), { maxLength: 80 }), (pushes) => {
      let nowMs = 5_000;
      let fullAtMs = nowMs;
      const granted: Granted[] = [];
      for (const [pause, cost] of pushes) {
        nowMs += pause;
        if (pushWaitMs(fullAtMs, cost, nowMs) > 0) continue;
        fullAtMs = fullAfter(fullAtMs, cost, nowMs);
        granted.push({ atMs: nowMs, costMs: cost });
      }
      expect(mostAtOnceMs(granted)).toBeLessThanOrEqual(BURST_MS + ROUNDING_MS);
    }),
    properties({ runs: 500 }),
  );
});

test("a push is granted after the delay of its answer, and not a millisecond earlier", () => {
  const largeMs = fc.double({ min: 0.001, max: 5 * BURST_MS, noNaN: true });
  fc.assert(
    fc.property(fc.array(fc.tuple(pauseMs, largeMs), { maxLength: 40 }), (pushes) => {
      let nowMs = 5_000;
      let fullAtMs = nowMs;
      for (const [pause, cost] of pushes) {
        nowMs += pause;
        const waitMs = Math.ceil(pushWaitMs(fullAtMs, cost, nowMs));
        // Times round: looked at a hundredth of a millisecond before the whole one.
        const earlierMs = pushWaitMs(fullAtMs, cost, nowMs + waitMs - 1.01);
        expect(earlierMs > 0 || waitMs <= 1).toBe(true);
        nowMs += waitMs;
        expect(pushWaitMs(fullAtMs, cost, nowMs)).toBe(0);
        fullAtMs = fullAfter(fullAtMs, cost, nowMs);
      }
    }),
    properties({ runs: 500 }),
  );
});

/** Streams that send without end, each a frame whenever its wait is over, and pushes between them. */
test("streams get at most the rate, one bucket and one frame each, and no stream or push waits for ever", () => {
  fc.assert(
    fc.property(
      fc.array(fc.double({ min: 0.001, max: 200, noNaN: true }), { minLength: 1, maxLength: 4 }),
      fc.array(
        costMs.filter((cost) => cost <= BURST_MS / 4),
        { maxLength: 30 },
      ),
      (frames, pushes) => {
        let fullAtMs = 0;
        const granted: Granted[] = [];
        const streams = frames.map((cost) => ({ cost, nextMs: 0, sent: 0 }));
        const waiting = pushes.map((cost) => ({ cost, sinceMs: 100 }));
        for (let nowMs = 0; nowMs < 6_000; nowMs += 1) {
          for (const stream of streams) {
            if (stream.nextMs > nowMs) continue;
            fullAtMs = fullAfter(fullAtMs, stream.cost, nowMs);
            granted.push({ atMs: nowMs, costMs: stream.cost });
            stream.nextMs = nowMs + Math.max(1, streamWaitMs(fullAtMs, nowMs));
            stream.sent += 1;
          }
          const [push] = waiting;
          if (push === undefined || nowMs < 100) continue;
          if (pushWaitMs(fullAtMs, push.cost, nowMs) > 0) continue;
          fullAtMs = fullAfter(fullAtMs, push.cost, nowMs);
          granted.push({ atMs: nowMs, costMs: push.cost });
          waiting.shift();
        }
        const oneEach = frames.reduce((sum, cost) => sum + cost, 0);
        const total = granted.reduce((sum, { costMs: cost }) => sum + cost, 0);
        expect(total).toBeLessThanOrEqual(6_000 + BURST_MS + oneEach + ROUNDING_MS);
        for (const { sent } of streams) expect(sent).toBeGreaterThan(1);
        // Where the frames of all streams together leave room beside half a bucket.
        expect(oneEach > BURST_MS / 4 || waiting.length === 0).toBe(true);
      },
    ),
    properties({ runs: 60 }),
  );
});
