/**
 * A few seconds of the faults harness, so that it does not rot; docs/faults.md tells how it is run for
 * long, and with planted defects. SEED says which faults strike.
 */
import { expect, test } from "vitest";
import { DEFECTS, placeOf } from "../faults/defects-table.ts";
import { FAULT_KINDS, planned, type Step } from "../faults/plan.ts";
import { runFaults } from "../faults/run.ts";
import { Random, seedOfRun } from "../support/random.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

test("faults of a few seconds break no promise", async () => {
  const seed = seedOfRun();
  const lines = [`faults: SEED=${seed}`];
  const result = await runFaults({
    seed,
    seconds: 3,
    // Those that heal at once; the others are for a long run.
    kinds: [
      "kill_postgres",
      "connections_reset",
      "listen_half_open",
      "session_locked",
      "lost_answers",
    ],
    tell: (line) => lines.push(line),
  });
  process.stdout.write(`${lines.join("\n")}\n`);
  expect(result.violations).toEqual([]);
  expect(Object.keys(result.faults).length).toBeGreaterThan(0);
});

test("a plan has every kind of fault in its first round, and is the same for the same seed", () => {
  const stepsOf = (seed: number): readonly Step[] => {
    const steps = planned(new Random(seed), FAULT_KINDS);
    return Array.from({ length: 100 }, () => steps.next().value);
  };
  expect(stepsOf(7)).toEqual(stepsOf(7));
  const first = stepsOf(1).slice(0, FAULT_KINDS.length);
  expect(new Set(first.map(({ faults }) => faults[0]?.kind))).toEqual(new Set(FAULT_KINDS));
});

test.each(DEFECTS)("the planted defect $name finds the code that it changes", ({ edits }) => {
  for (const edit of edits) expect(placeOf(edit, ROOT)).toContain("/src/");
});
