/**
 * A runner whose file cannot be written while it emits one run, killed by itself at the worst moment:
 * every event of the run is committed, and its messages are not.
 *
 *   UV_THREADPOOL_SIZE=1 node test/support/runner-stuck-file.ts <address> <session> <file> <pipe>
 *
 * Node writes files on the threads of a pool. The only thread of this one waits at a named pipe, until
 * a second writer has had its events committed: by then the service would have those of the first too.
 */
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { createSessionWriter } from "@session-ledger/runner/internal/writer/writer";
import { eventsOfRun } from "./writing.ts";

const [, , address = "", sessionId = "", file = "", pipe = ""] = process.argv;

const writer = createSessionWriter({ address, sessionId, spool: { file } });
const other = createSessionWriter({ address, sessionId: `${sessionId}-other` });
for (const payload of eventsOfRun(1, 5)) {
  writer.event(payload);
  other.event(payload);
}
await Promise.all([writer.flush(), other.flush()]);
const { committed: before } = writer.stats.events;

const stuck = readFile(pipe);
const run = eventsOfRun(2, 5);
for (const payload of run) writer.event(payload);
void writer.flush(); // The service commits at once.
const isCommitted = (count: number) => writer.stats.events.committed >= before + count;
void (async () => {
  for (let round = 0; round < 3; round += 1) {
    for (const payload of eventsOfRun(2 + round, 5)) other.event(payload);
    await other.flush();
  }
  spawn("sh", ["-c", 'echo > "$1"', "sh", pipe]);
  await stuck;
})();
while (!isCommitted(run.length)) await setImmediate();
process.kill(process.pid, "SIGKILL");
