/**
 * The generated service as a client: unary calls are promises, watches are async iterables, and a
 * failure is an RpcFailure with everything its status carried. Nothing is repeated here; what may be
 * is for the caller to know (retry.ts, resume.ts).
 */
import {
  create,
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { failureFrom, RpcFailure } from "./failure.ts";

/** The methods of the contract, to be named in `call` and `watch`. */
export const ledger = SessionService.method;

interface CallOptions {
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal;
}

interface WatchOptions {
  readonly signal?: AbortSignal;
  /** Called once, when the service has taken the watch; rows may be long in coming. */
  readonly onAttached?: () => void;
}

export interface LedgerClient {
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): Promise<MessageShape<O>>;
  /** Ends when the service ends it or the caller leaves the loop. */
  watch<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options?: WatchOptions,
  ): AsyncGenerator<MessageShape<O>, void, undefined>;
  /** Lets go of the connection once the calls under way have ended. */
  close(): void;
}

/** Twice what existing runners allow a push. */
const DEADLINE_MS = 10_000;
/** grpc-js waits up to two minutes between connection attempts; callers here back off themselves. */
const RECONNECT_FIRST_MS = 100;
const RECONNECT_MAX_MS = 2_000;
/** A watch may be silent for hours, so only a ping finds out that its peer is gone. */
const PING_INTERVAL_MS = 20_000;
const PING_TIMEOUT_MS = 10_000;

export function createLedgerClient({ address }: { readonly address: string }): LedgerClient {
  const client = new Client(address, credentials.createInsecure(), {
    "grpc.initial_reconnect_backoff_ms": RECONNECT_FIRST_MS,
    "grpc.max_reconnect_backoff_ms": RECONNECT_MAX_MS,
    "grpc.keepalive_time_ms": PING_INTERVAL_MS,
    "grpc.keepalive_timeout_ms": PING_TIMEOUT_MS,
  });
  return {
    call: (method, request, options = {}) => call(client, method, request, options),
    watch: (method, request, options = {}) => watch(client, method, request, options),
    close: () => client.close(),
  };
}

function call<I extends DescMessage, O extends DescMessage>(
  client: Client,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  { deadlineMs = DEADLINE_MS, signal }: CallOptions,
): Promise<MessageShape<O>> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(cancelled(signal));
      return;
    }
    const under = client.makeUnaryRequest(
      pathOf(method),
      passOn,
      (bytes: Buffer) => fromBinary(method.output, bytes),
      encode(method.input, request),
      new Metadata(),
      { deadline: Date.now() + deadlineMs },
      (error, response) => {
        signal?.removeEventListener("abort", cancel);
        if (response !== undefined) resolve(response);
        else reject(failureFrom(error));
      },
    );
    const cancel = (): void => under.cancel();
    signal?.addEventListener("abort", cancel);
  });
}

async function* watch<I extends DescMessage, O extends DescMessage>(
  client: Client,
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  { signal, onAttached }: WatchOptions,
): AsyncGenerator<MessageShape<O>, void, undefined> {
  if (signal?.aborted === true) throw cancelled(signal);
  const stream = client.makeServerStreamRequest(
    pathOf(method),
    passOn,
    (bytes: Buffer) => fromBinary(method.output, bytes),
    encode(method.input, request),
    new Metadata(),
  );
  const cancel = (): void => stream.cancel();
  signal?.addEventListener("abort", cancel);
  if (onAttached !== undefined) stream.once("metadata", onAttached);
  // The status of a stream that was left is an "error" event too, and nobody listens any more.
  stream.on("error", () => undefined);
  try {
    // Reading asks for the next message only when this one is taken: a slow reader slows the stream.
    for await (const message of stream) yield message;
  } catch (error) {
    throw failureFrom(error);
  } finally {
    signal?.removeEventListener("abort", cancel);
    stream.cancel();
  }
}

function pathOf(method: { readonly name: string }): string {
  return `/${SessionService.typeName}/${method.name}`;
}

/** Encoded here and not by grpc-js, so that a request that cannot be encoded is the caller's defect. */
function encode<I extends DescMessage>(input: I, request: MessageInitShape<I>): Buffer {
  return Buffer.from(toBinary(input, create(input, request)));
}

function passOn(bytes: Buffer): Buffer {
  return bytes;
}

function cancelled(signal: AbortSignal): RpcFailure {
  return new RpcFailure("CANCELLED", "cancelled before it began", { cause: signal.reason });
}
