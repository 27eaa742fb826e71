/**
 * A runner in its own process, for a test that kills it: `node stream-runner.ts ADDRESS SESSION EVENTS`.
 * It begins a sentence of EVENTS events, never ends it, and prints a line when the service has them all.
 */
import { setInterval } from "node:timers";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "./grpc-client.ts";
import { Random } from "./random.ts";
import { StreamSource } from "./stream-clients.ts";

const [address = "", sessionId = "", count = ""] = process.argv.slice(2);
const { pushSessionEvents, listSessions } = SessionService.method;
const client = new RpcClient(address);
const stream = client.bidiStream(pushSessionEvents);
/** No group reaches this age before the test looks. */
const maxAgeMs = 5_000;
stream.send({ frame: { case: "open", value: { sessionId, maxAgeMs } } });
await stream.next();
const events = new StreamSource(new Random(1)).sentence(Number(count)).slice(0, Number(count));
for (const [at, event] of events.entries()) {
  const value = { firstClientSeq: BigInt(at) + 1n, events: [event] };
  stream.send({ frame: { case: "batch", value } });
}
// One connection: frames sent before this call have arrived when it is answered.
await client.unary(listSessions, { size: 1 });
process.stdout.write("sent\n");
setInterval(() => undefined, 60_000);
