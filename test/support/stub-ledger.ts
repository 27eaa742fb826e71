/**
 * A ledger in memory behind a real grpc-js server, for behaviour that the real one cannot be made to
 * show: know no stream, refuse a token, be slow, stay silent. It keeps its requests unchanged.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type sendUnaryData,
  status,
} from "@grpc/grpc-js";
import {
  PushSessionEventsRequestSchema,
  type PushSessionEventsResponse,
  PushSessionEventsResponseSchema,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { ErrorInfoSchema } from "@session-ledger/proto/google/rpc/error_details_pb";
import { StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import { encodeEvent } from "./upstream-codec.ts";

export interface StubOptions {
  /** `host:port`; default: a free port. */
  readonly address?: string;
  /** False: PushSessionEvents is UNIMPLEMENTED, as with upstream's servers. */
  readonly streams?: boolean;
  /** The only token that is accepted; it may change. */
  readonly token?: () => string;
  /** Status of an event that is refused; undefined: it is committed. */
  readonly refuses?: (payload: string) => number | undefined;
  /** False: an Open is accepted and never answered. */
  readonly opens?: () => boolean;
  /** False: events are accepted and never acknowledged. */
  readonly acknowledges?: () => boolean;
  /** The number of acknowledged events beyond those that arrived. */
  readonly overstatesBy?: () => bigint;
  /** False: events of a stream are committed without an answer. */
  readonly answers?: () => boolean;
  /** True: events are acknowledged when the client flushes, as those of an open row are. */
  readonly commitsOnFlush?: boolean;
  /** Fails the push of a message. */
  readonly failsPush?: (bytes: Buffer) => Failure | undefined;
}

export interface Failure {
  readonly code: status;
  readonly reason?: string;
}

export interface StubEvent {
  readonly epoch: bigint;
  readonly clientSeq: bigint;
  readonly payload: string;
}

export interface StubLedger {
  readonly address: string;
  /** Of streams, in the order of their commits. */
  readonly events: readonly StubEvent[];
  /** Requests of pushes, in bytes. */
  readonly pushedMessages: readonly Buffer[];
  /** Bearer tokens of all calls. */
  readonly tokens: readonly string[];
  /** Opens so far. */
  readonly opened: number;
  /** The epochs they asked for. */
  readonly asked: readonly bigint[];
  /** As after a restore from a backup: the last events are gone, and so are their numbers. */
  forget(count: number): void;
  /** Ends the open streams. */
  breakStreams(failure: Failure): void;
  stop(): Promise<void>;
}

type Stream = ServerDuplexStream<Buffer, Buffer>;

interface Epoch {
  lastClientSeq: bigint;
  refused: bigint;
}

const SERVICE = "/ambient.v1.SessionService";
const UNACKNOWLEDGED_BYTES_MAX = 1_048_576n;

export async function startStubLedger(options: StubOptions = {}): Promise<StubLedger> {
  const events: StubEvent[] = [];
  const pushedMessages: Buffer[] = [];
  const tokens: string[] = [];
  const epochs = new Map<bigint, Epoch>();
  const streams = new Set<Stream>();
  const asked: bigint[] = [];
  let highest = 0n;
  let opened = 0;
  let seq = 0n;

  const isKnown = (metadata: Metadata): boolean => {
    const [header] = metadata.get("authorization");
    tokens.push(String(header ?? "").replace("Bearer ", ""));
    return options.token === undefined || tokens.at(-1) === options.token();
  };

  const stream = (call: Stream): void => {
    if (!isKnown(call.metadata)) return fail(call, { code: status.UNAUTHENTICATED });
    streams.add(call);
    call.on("close", () => streams.delete(call));
    let epoch = 0n;
    let state: Epoch = { lastClientSeq: 0n, refused: 0n };
    const say = (frame: PushSessionEventsResponse["frame"]): void => {
      if (frame.case !== "opened" && options.answers?.() === false) return;
      const response = create(PushSessionEventsResponseSchema, { frame });
      call.write(Buffer.from(toBinary(PushSessionEventsResponseSchema, response)));
    };
    const committed = (): void =>
      say({
        case: "committed",
        value: {
          $typeName: "ambient.v1.Committed",
          lastClientSeq: state.lastClientSeq + (options.overstatesBy?.() ?? 0n),
          firstSeq: seq === 0n ? 0n : 1n,
          lastSeq: seq,
        },
      });
    call.on("data", (bytes: Buffer) => {
      const { frame } = fromBinary(PushSessionEventsRequestSchema, bytes);
      if (frame.case === "open") {
        opened += 1;
        asked.push(frame.value.producerEpoch);
        if (options.opens?.() === false) return undefined;
        epoch = frame.value.producerEpoch === 0n ? highest + 1n : frame.value.producerEpoch;
        if (epoch < highest)
          return fail(call, { code: status.FAILED_PRECONDITION, reason: "STALE_EPOCH" });
        highest = epoch;
        state = epochs.get(epoch) ?? state;
        epochs.set(epoch, state);
        say({
          case: "opened",
          value: {
            $typeName: "ambient.v1.Opened",
            lastClientSeq: state.lastClientSeq,
            maxUnacknowledgedBytes: UNACKNOWLEDGED_BYTES_MAX,
            producerEpoch: epoch,
            refused: state.refused,
          },
        });
      }
      if (frame.case === "flush") return committed();
      if (frame.case !== "batch" || options.acknowledges?.() === false) return undefined;
      frame.value.events.forEach(({ payload }, at) => {
        const clientSeq = frame.value.firstClientSeq + BigInt(at);
        if (clientSeq <= state.lastClientSeq) return;
        if (clientSeq !== state.lastClientSeq + 1n)
          return fail(call, { code: status.INVALID_ARGUMENT });
        state.lastClientSeq = clientSeq;
        const refusal = options.refuses?.(payload);
        if (refusal === undefined) {
          events.push({ epoch, clientSeq, payload });
          seq += 1n;
          return;
        }
        state.refused += 1n;
        say({
          case: "refused",
          value: {
            $typeName: "ambient.v1.Refused",
            clientSeq,
            status: create(StatusSchema, { code: refusal, message: "refused by the test" }),
          },
        });
      });
      if (options.commitsOnFlush !== true) committed();
    });
    call.on("end", () => call.end());
    call.on("error", () => undefined);
  };

  const push = (call: ServerUnaryCall<Buffer, Buffer>, answer: sendUnaryData<Buffer>): void => {
    if (!isKnown(call.metadata)) return answer(errorOf({ code: status.UNAUTHENTICATED }));
    const failure = options.failsPush?.(call.request);
    if (failure !== undefined) return answer(errorOf(failure));
    pushedMessages.push(call.request);
    answer(null, encodeEvent({ ...EMPTY, seq: BigInt(pushedMessages.length) }));
  };

  const server = new Server();
  server.addService(
    {
      pushSessionMessage: method("PushSessionMessage", false),
      ...(options.streams === false
        ? {}
        : { pushSessionEvents: method("PushSessionEvents", true) }),
    },
    {
      pushSessionMessage: push,
      ...(options.streams === false ? {} : { pushSessionEvents: stream }),
    },
  );
  const address = await listen(server, options.address ?? "127.0.0.1:0");
  return {
    address,
    events,
    pushedMessages,
    tokens,
    asked,
    get opened() {
      return opened;
    },
    forget: (count) => {
      events.length -= count;
      for (const state of epochs.values()) state.lastClientSeq -= BigInt(count);
    },
    breakStreams: (failure) => {
      for (const call of streams) fail(call, failure);
    },
    stop: async () => server.forceShutdown(),
  };
}

const EMPTY = {
  id: "of-the-stub",
  sessionId: "",
  eventType: "",
  payload: "",
  createdAt: undefined,
  completedAt: undefined,
  eventCount: 1,
};

function fail(call: Stream, failure: Failure): void {
  call.emit("error", errorOf(failure));
}

function errorOf({ code, reason }: Failure) {
  const metadata = new Metadata();
  const details =
    reason === undefined ? [] : [anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason }))];
  const message = `failed by the test with ${status[code]}`;
  metadata.set(
    "grpc-status-details-bin",
    Buffer.from(toBinary(StatusSchema, create(StatusSchema, { code, message, details }))),
  );
  return Object.assign(new Error(message), { code, details: message, metadata });
}

function method(name: string, isStream: boolean) {
  const identity = (bytes: Buffer): Buffer => bytes;
  return {
    path: `${SERVICE}/${name}`,
    requestStream: isStream,
    responseStream: isStream,
    requestSerialize: identity,
    requestDeserialize: identity,
    responseSerialize: identity,
    responseDeserialize: identity,
  };
}

function listen(server: Server, address: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
    if (error !== null) reject(error);
    else resolve(`127.0.0.1:${port}`);
  });
  return promise;
}
