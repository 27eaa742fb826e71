/**
 * A runner in its own process that a test may kill: runs of an agent without end, one token in each turn
 * of the event loop, into a writer with a file.
 *
 *   node test/support/runner-process.ts <address> <session> <file> <first run> <runs> [<words>]
 *
 * It prints a line of JSON after each run, and one when the writer is closed. With no runs it only sends
 * the rest of the file.
 */
import { setImmediate } from "node:timers/promises";
import { createSessionWriter } from "@session-ledger/runner/internal/writer/writer";
import { eventsOfRun } from "./writing.ts";

const [, , address = "", sessionId = "", file = "", first = "1", runs = "0", words = "20"] =
  process.argv;

const say = (value: unknown): void => {
  process.stdout.write(`${JSON.stringify(value)}\n`);
};

const writer = createSessionWriter({
  address,
  sessionId,
  spool: { file },
  onProblem: (problem) => say({ problem }),
});
for (let run = Number(first); run < Number(first) + Number(runs); run += 1) {
  for (const payload of eventsOfRun(run, Number(words))) {
    writer.event(payload);
    await setImmediate();
  }
  say({ run });
}
const { complete, kept, stats } = await writer.close({ timeoutMs: 120_000 });
say({ closed: { complete, kept, events: stats.events, messages: stats.messages } });
