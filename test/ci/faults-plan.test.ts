import { describe, expect, test } from "vitest";
import { FAULT_KINDS, FAULTS, planned, type Step } from "../faults/plan.ts";
import { Random } from "../support/random.ts";

const STEPS = 200;

function stepsOf(seed: number): readonly Step[] {
  const steps = planned(new Random(seed), FAULT_KINDS);
  return Array.from({ length: STEPS }, () => steps.next().value);
}

describe("a plan of faults", () => {
  test("is the same for the same seed, and different for another", () => {
    expect(stepsOf(7)).toEqual(stepsOf(7));
    expect(stepsOf(8)).not.toEqual(stepsOf(7));
  });

  test("has every kind of fault in every round", () => {
    const first = stepsOf(1).slice(0, FAULT_KINDS.length);
    expect(new Set(first.map(({ faults }) => faults[0]?.kind))).toEqual(new Set(FAULT_KINDS));
  });

  test("has faults at the same time, but never two on the same target", () => {
    const pairs = stepsOf(1).filter(({ faults }) => faults.length === 2);
    expect(pairs.length).toBeGreaterThan(STEPS / 10);
    for (const { faults } of pairs) {
      const taken = faults.map(({ kind, replica }) =>
        FAULTS[kind] === "replica" ? `replica ${replica}` : FAULTS[kind],
      );
      expect(new Set(taken).size).toBe(2);
    }
  });
});
