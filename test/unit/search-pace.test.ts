import { expect, test } from "vitest";
import { Pace } from "../../src/search/pace.ts";

// Bug: on a busy process the index paused forty times as long as it worked, however late it was.
test("an index that is behind takes idle time, then time of a busy process while pushes are quick", () => {
  let nowMs = 0;
  const pace = new Pace({ monotonicMs: () => nowMs });
  const pauses = (lagMs: number) =>
    [0, 0.5, 0.8, 0.9, 1].map((utilization) => Math.round(pace.pauses({ utilization, lagMs })));
  expect(pauses(-1)).toEqual([0, 10, 26, 32, 40]);
  expect(pauses(0)).toEqual([0, 10, 26, 32, 40]);
  expect(pauses(5_000)).toEqual([0, 0, 5, 15, 40]);
  expect(pauses(10_000)).toEqual([0, 0, 1, 7, 40]);
  expect(pauses(15_000)).toEqual([0, 0, 1, 4, 20]);
  expect(pauses(20_000)).toEqual([0, 0, 0, 0, 0]);
  expect(pauses(600_000)).toEqual([0, 0, 0, 0, 0]);
  pace.committed(200);
  expect(pauses(20_000).at(-1)).toBe(0);
  pace.committed(201);
  expect(pauses(20_000)).toEqual([0, 10, 26, 32, 40]);
  nowMs += 1_000;
  expect(pauses(20_000).at(-1)).toBe(0);
});
