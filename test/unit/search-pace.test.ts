import { expect, test } from "vitest";
import { Pace } from "../../src/search/pace.ts";

// Bug: on a busy process the index paused forty times as long as it worked, however late it was.
test("an index pauses shorter the further it is behind, unless pushes wait too long", () => {
  let nowMs = 0;
  const pace = new Pace({ monotonicMs: () => nowMs });
  const pauses = (lagMs: number, utilization = 1) => pace.pauses({ utilization, lagMs });
  expect([-1, 0, 5_000, 10_000, 20_000, 600_000].map((lagMs) => pauses(lagMs))).toEqual([
    40, 40, 30, 20, 0, 0,
  ]);
  expect([0, 0.5].map((utilization) => pauses(10_000, utilization))).toEqual([0, 5]);
  pace.committed(200);
  expect(pauses(20_000)).toBe(0);
  pace.committed(201);
  expect(pauses(20_000)).toBe(40);
  nowMs += 1_000;
  expect(pauses(20_000)).toBe(0);
});
