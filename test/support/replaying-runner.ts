/**
 * A runner that replays its events at each start: `node replaying-runner.ts ADDRESS SESSION LINE` writes
 * the events of its input, one a line, waits after that line until all events so far are settled, prints
 * a line, and closes the session when the input ends.
 */
import { createSessionWriter, fromJsonLines } from "@session-ledger/runner";

const [address = "", sessionId = "", line = ""] = process.argv.slice(2);
const writer = createSessionWriter({ address, sessionId });
for await (const { number, text } of fromJsonLines(process.stdin)) {
  writer.event(text);
  if (number !== Number(line)) continue;
  const { complete } = await writer.flush();
  process.stdout.write(complete ? "settled\n" : "not settled\n");
}
const { complete, stats } = await writer.close();
process.stdout.write(`${JSON.stringify({ complete, refused: stats.messages.refused })}\n`);
