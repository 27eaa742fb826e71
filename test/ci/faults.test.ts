/**
 * A few seconds of the faults harness, so that it does not rot; docs/faults.md tells how it is run for
 * long. SEED says which faults strike.
 */
import { expect, test } from "vitest";
import { runFaults } from "../faults/run.ts";
import { seedOfRun } from "../support/random.ts";

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
