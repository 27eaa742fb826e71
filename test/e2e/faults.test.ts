/**
 * One round of the faults harness with a small load: all kinds of clients at once on two services, while each
 * fault below strikes once. docs/faults.md has longer runs, the other faults and planted defects. SEED decides the order and
 * the moments; LOAD_SECONDS makes the run longer.
 */
import { expect, test } from "vitest";
import { DEFECTS, placeOf } from "../faults/defects-table.ts";
import { FAULT_KINDS, planned, type Step } from "../faults/plan.ts";
import { runFaults } from "../faults/run.ts";
import { Random, seedOfRun } from "../support/random.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

/** The other kinds need more time, or root. */
const KINDS = [
  "kill_replica",
  "restart_replica",
  "kill_postgres",
  "connections_reset",
  "lost_answers",
  "listen_half_open",
  "session_locked",
] as const;

test.each([
  { workers: 1, kinds: KINDS },
  { workers: 2, kinds: ["kill_worker", "kill_replica", "restart_replica"] as const },
])("faults under load break no promise (workers: $workers)", async ({ workers, kinds }) => {
  const seed = seedOfRun();
  const lines = [`faults: SEED=${seed}`];
  const seconds = Number(process.env["LOAD_SECONDS"] ?? "1");
  const tell = (line: string): unknown => lines.push(line);
  const result = await runFaults({ seed, seconds, kinds, workers, isSmall: true, tell });
  process.stdout.write(`${lines.join("\n")}\n`);
  expect(result.violations).toEqual([]);
  expect(Object.keys(result.faults)).toEqual(expect.arrayContaining([...kinds]));
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
