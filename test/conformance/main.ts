/**
 * The conformance suite for a client in any language: `node test/conformance/main.ts ADDRESS COMMAND…`.
 * ADDRESS is that of a running service without TLS and tokens, COMMAND starts the client's driver.
 *
 * A driver reads commands as JSON lines and answers each by one line, in order (docs/clients.md). Only
 * `\n` ends a line. Numbers of rows and times are JSON numbers, an epoch is a text of digits. Keep one
 * connection: a case can hold back the answers of the service, and nobody can connect then.
 *
 * - `hello {address, session}`: the first command of each case, with the address of a proxy before the
 *   service and the session of all other commands. It forgets the case before. Answers `{features}`;
 *   cases that need more are skipped
 *
 * Features `writer`, `messages` (`writer.message`), and `replay`, for agents that make the same events
 * again after a restart. A writer that keeps unstored records in a file needs no replay:
 *
 * - `writer.open {epoch?, bytes_max?, replay?}`: a writer that derives no messages. `bytes_max` bounds the
 *   waiting events. With `replay` the events begin with the first of the epoch, and those that the
 *   service has are not stored again
 * - `writer.event {event}`: an object, or a text that is sent as it is. Never fails
 * - `writer.message {type, payload}`
 * - `writer.flush {timeout_ms}`: waits until all earlier records are settled. Answers `{complete, state,
 *   epoch, committed, refused, dropped, pending, reasons}`: the state is `open`, `fenced` (a later writer
 *   took over), `ended` (the service accepts nothing more) or `closed`; the counts are of events;
 *   `reasons` has that of each refused event
 * - `writer.close {timeout_ms}`: the same at the end
 *
 * Feature `reader`:
 *
 * - `reader.open {stream, after, expand, follow}`: `stream` is `events` or `messages`
 * - `reader.next {until, timeout_ms}`: reads until a row with the number `until` or the end. Answers
 *   `{items, ended}`, an item is `{seq, last_seq, type, payload}`
 * - `reader.close`
 *
 * Feature `turns`:
 *
 * - `turns.open {epoch?}`: by default an epoch above that of an earlier process
 * - `turns.next {timeout_ms}`: claims with `redeliver`, and repeats a claim whose answer was lost. Answers
 *   `{turn}`: `{run_id, messages, lost_run_id}` with the payloads of the messages, or null
 * - `turns.event {event}`: an event of the run
 * - `turns.cancelled {timeout_ms}`: waits for a cancel of the run. Answers `{cancelled, reason}`
 * - `turns.finish`: pushes `RUN_FINISHED`, with the outcome `cancelled` after a cancel, and waits until it
 *   is stored
 * - `turns.close`
 */
import { RpcClient } from "../support/grpc-client.ts";
import { CASES } from "./cases.ts";
import { Suite } from "./suite.ts";

const [, , address, ...command] = process.argv;
if (address === undefined || command.length === 0) {
  process.stderr.write("usage: node test/conformance/main.ts ADDRESS COMMAND...\n");
  process.exit(2);
}
const client = new RpcClient(address);
const suite = new Suite({ client, address, command });
let failed = 0;
for (const one of CASES) {
  const outcome = await suite.run(one).catch((error: unknown) => {
    failed += 1;
    return `FAILED: ${error instanceof Error ? error.message : String(error)}`;
  });
  process.stdout.write(`${one.name}: ${outcome}\n`);
}
await suite.stop();
client.close();
process.exitCode = failed > 0 ? 1 : 0;
