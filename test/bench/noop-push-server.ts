/**
 * The ceiling of push streams: plain grpc-js, as its documentation has it, with protobuf-es to decode
 * and encode. Each frame is decoded and acknowledged at once; nothing is validated, merged or kept.
 * `lazy`: what comes in one turn of the event loop is acknowledged together, as a server does that
 * acknowledges commits.
 *
 *   node test/bench/noop-push-server.ts <max_unacknowledged_bytes> eager|lazy
 *
 * prints {"address":"127.0.0.1:40123"}
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import {
  type PushSessionEventsRequest,
  PushSessionEventsRequestSchema,
  type PushSessionEventsResponse,
  PushSessionEventsResponseSchema,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";

const [, , maxUnacknowledgedBytes = "1048576", pace = "eager"] = process.argv;

type Stream = ServerDuplexStream<PushSessionEventsRequest, PushSessionEventsResponse>;

function converse(stream: Stream): void {
  let lastClientSeq = 0n;
  let waiting: NodeJS.Immediate | undefined;
  const acknowledge = (): void => {
    waiting = undefined;
    stream.write(committed(lastClientSeq));
  };
  stream.on("data", ({ frame }: PushSessionEventsRequest) => {
    if (frame.case === "open") stream.write(opened());
    if (frame.case !== "batch") return;
    lastClientSeq = frame.value.firstClientSeq + BigInt(frame.value.events.length) - 1n;
    if (pace === "eager") acknowledge();
    else waiting ??= setImmediate(acknowledge);
  });
  stream.on("end", () => {
    if (waiting !== undefined) acknowledge();
    stream.end();
  });
}

function opened(): PushSessionEventsResponse {
  const value = { maxUnacknowledgedBytes: BigInt(maxUnacknowledgedBytes), producerEpoch: 1n };
  return create(PushSessionEventsResponseSchema, { frame: { case: "opened", value } });
}

function committed(lastClientSeq: bigint): PushSessionEventsResponse {
  const value = { lastClientSeq, lastSeq: lastClientSeq };
  return create(PushSessionEventsResponseSchema, { frame: { case: "committed", value } });
}

const server = new Server();
server.addService(
  {
    pushSessionEvents: {
      path: "/ambient.v1.SessionService/PushSessionEvents",
      requestStream: true,
      responseStream: true,
      requestSerialize: (request: PushSessionEventsRequest) =>
        Buffer.from(toBinary(PushSessionEventsRequestSchema, request)),
      requestDeserialize: (bytes) => fromBinary(PushSessionEventsRequestSchema, bytes),
      responseSerialize: (response: PushSessionEventsResponse) =>
        Buffer.from(toBinary(PushSessionEventsResponseSchema, response)),
      responseDeserialize: (bytes) => fromBinary(PushSessionEventsResponseSchema, bytes),
    },
  },
  { pushSessionEvents: converse },
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error !== null) throw error;
  process.stdout.write(`${JSON.stringify({ address: `127.0.0.1:${port}` })}\n`);
});
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => server.forceShutdown());
}
