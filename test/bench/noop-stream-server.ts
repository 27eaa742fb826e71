/**
 * The ceiling of a fan-out: grpc-js alone. When the wanted number of watches is open, each gets the wanted
 * number of rows of the same bytes, as fast as it takes them; nothing is encoded, read or kept.
 *
 *   node test/bench/noop-stream-server.ts <watchers> <rows>      prints {"address":"127.0.0.1:40123"}
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type ServerWritableStream } from "@grpc/grpc-js";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { payloadOf } from "./bodies.ts";

const [, , watchers = "1", rows = "1"] = process.argv;

const message = Buffer.from(
  toBinary(
    SessionEventSchema,
    create(SessionEventSchema, {
      id: "01900000-0000-7000-8000-000000000000",
      sessionId: "bench-fan-out",
      seq: 1_000n,
      eventType: "TEXT_MESSAGE_CONTENT",
      payload: payloadOf("TEXT_MESSAGE_CONTENT"),
      createdAt: { seconds: 1_700_000_000n, nanos: 123_456_000 },
      eventCount: 1,
    }),
  ),
);

type Stream = ServerWritableStream<Buffer, Buffer>;
let waiting: Stream[] = [];

function watch(stream: Stream): void {
  stream.sendMetadata(stream.metadata.clone());
  waiting.push(stream);
  if (waiting.length < Number(watchers)) return;
  const all = waiting;
  waiting = [];
  // Every watch has its headers before the first row is sent.
  setTimeout(() => {
    for (const one of all) void sendAll(one);
  }, 500);
}

async function sendAll(stream: Stream): Promise<void> {
  for (let row = 0; row < Number(rows); row += 1) {
    if (stream.write(message)) continue;
    await new Promise((resolve) => stream.once("drain", resolve));
  }
}

const pass = (bytes: Buffer): Buffer => bytes;
const server = new Server();
server.addService(
  {
    watch: {
      path: "/ambient.v1.SessionService/WatchSessionEvents",
      requestStream: false,
      responseStream: true,
      requestSerialize: pass,
      requestDeserialize: pass,
      responseSerialize: pass,
      responseDeserialize: pass,
    },
  },
  { watch },
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error !== null) throw error;
  process.stdout.write(`${JSON.stringify({ address: `127.0.0.1:${port}` })}\n`);
});
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => server.forceShutdown());
}
