/**
 * The generated service as a client: unary calls are promises, watches async iterables, streams in
 * both directions conversations. A failure is an RpcFailure. A call is repeated only on request.
 */
import {
  create,
  type DescMessage,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Client, type ClientDuplexStream, Metadata } from "@grpc/grpc-js";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  checkAddress,
  checkOptions,
  type Checks,
  checkTls,
  checkToken,
  unchecked,
} from "./checks.ts";
import { credentialsOf, metadataOf, type Tls, type TokenSource } from "./credentials.ts";
import { failureFrom, RpcFailure } from "./failure.ts";
import { retrying, type RetryOptions } from "./retry.ts";

/** The methods of the contract, for `call`, `watch` and `converse`. */
export const ledger = SessionService.method;

interface RetriedCallOptions
  extends Partial<Pick<RetryOptions, "retryForMs" | "signal" | "mayRepeat" | "onRetry">> {
  /** The limit of each attempt. */
  readonly deadlineMs?: number;
}

interface WatchCallOptions {
  readonly signal?: AbortSignal;
  /** Called once, when the service has accepted the watch; the first row may come much later. */
  readonly onAttached?: () => void;
}

interface ConverseOptions {
  /** Cancels the conversation. */
  readonly signal?: AbortSignal;
}

/** A call with streams in both directions, from its caller's side. */
export interface Conversation<I extends DescMessage, O extends DescMessage> {
  /** False: the transport is full, and further messages stay in memory until `drained`. */
  send(request: MessageInitShape<I>): boolean;
  /** Resolves when the transport has room, or when the conversation is over. */
  drained(): Promise<void>;
  /** The caller sends nothing more; responses still arrive. */
  end(): void;
  cancel(): void;
  /** May be read once, to its end. Throws an RpcFailure when the service ends with an error. */
  readonly responses: AsyncGenerator<MessageShape<O>, void, undefined>;
}

export interface LedgerClientOptions {
  /** `host:port`. */
  readonly address: string;
  readonly token?: TokenSource | undefined;
  /** Default: without TLS. */
  readonly tls?: Tls | undefined;
  /** True: a separate connection, which ends with the client. Clients of one address share one. */
  readonly ownConnection?: boolean;
}

export interface LedgerClient {
  /** With `retryForMs` it is sent again while the service is away or asks for a later try. */
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options?: RetriedCallOptions,
  ): Promise<MessageShape<O>>;
  /** Ends when the service ends it or the caller leaves the loop. */
  watch<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options?: WatchCallOptions,
  ): AsyncGenerator<MessageShape<O>, void, undefined>;
  /** Resolves when the call has been started; it may not have arrived yet. */
  converse<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    options?: ConverseOptions,
  ): Promise<Conversation<I, O>>;
  /** Closes the connection after the calls in progress have ended. */
  close(): void;
}

/** Twice the limit that existing runners set for a push. */
const DEADLINE_MS = 10_000;

/** A transcript may be larger than the usual 4 MiB; the service makes none above this. */
const ANSWER_BYTES_MAX = 268_435_456;

/** Connects with the first call. Throws a TypeError when an option is invalid. */
export function createLedgerClient(options: LedgerClientOptions): LedgerClient {
  checkOptions("options", options, CHECKS);
  const { address, token, tls, ownConnection = false } = options;
  const client = new Client(address, credentialsOf(tls), {
    // grpc-js would wait up to two minutes between attempts; callers here back off themselves.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
    // A watch may be silent for hours, so only a ping detects that its peer is gone.
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.use_local_subchannel_pool": ownConnection ? 1 : 0,
    "grpc.max_receive_message_length": ANSWER_BYTES_MAX,
  });
  const caller: TokenClient = { client, token };
  return {
    call(method, request, callOptions = {}) {
      const attempt = () => call(caller, method, request, callOptions);
      const { retryForMs } = callOptions;
      if (retryForMs === undefined) return attempt();
      return retrying(attempt, { ...callOptions, retryForMs });
    },
    watch: (method, request, watchOptions = {}) => watch(caller, method, request, watchOptions),
    converse: (method, converseOptions = {}) => converse(caller, method, converseOptions),
    close: () => client.close(),
  };
}

const CHECKS: Checks<LedgerClientOptions> = {
  address: checkAddress,
  token: checkToken,
  tls: checkTls,
  ownConnection: unchecked,
};

interface TokenClient {
  readonly client: Client;
  readonly token: TokenSource | undefined;
}

function call<I extends DescMessage, O extends DescMessage>(
  { client, token }: TokenClient,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  { deadlineMs = DEADLINE_MS, signal }: RetriedCallOptions,
): Promise<MessageShape<O>> {
  const deadline = Date.now() + deadlineMs;
  const begin = (sent: Metadata): Promise<MessageShape<O>> =>
    new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(cancelled(signal));
        return;
      }
      const under = client.makeUnaryRequest(
        pathOf(method),
        passOn,
        (bytes: Buffer) => fromBinary(method.output, bytes),
        encode(method.input, request),
        sent,
        { deadline },
        (error, response) => {
          signal?.removeEventListener("abort", cancel);
          if (response !== undefined) resolve(response);
          else reject(failureFrom(error));
        },
      );
      const cancel = (): void => under.cancel();
      signal?.addEventListener("abort", cancel);
    });
  const sent = metadataOf(token, { deadlineMs, signal });
  return sent instanceof Metadata ? begin(sent) : sent.then(begin);
}

async function converse<I extends DescMessage, O extends DescMessage>(
  { client, token }: TokenClient,
  method: DescMethodBiDiStreaming<I, O>,
  { signal }: ConverseOptions,
): Promise<Conversation<I, O>> {
  const sent = await metadataOf(token, { deadlineMs: DEADLINE_MS, signal });
  if (signal?.aborted === true) throw cancelled(signal);
  const stream = client.makeBidiStreamRequest(pathOf(method), passOn, passOn, sent);
  return conversationOn(stream, method, signal);
}

async function* watch<I extends DescMessage, O extends DescMessage>(
  { client, token }: TokenClient,
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  { signal, onAttached }: WatchCallOptions,
): AsyncGenerator<MessageShape<O>, void, undefined> {
  const asked = metadataOf(token, { deadlineMs: DEADLINE_MS, signal });
  const sent = asked instanceof Metadata ? asked : await asked;
  if (signal?.aborted === true) throw cancelled(signal);
  const stream = client.makeServerStreamRequest(
    pathOf(method),
    passOn,
    (bytes: Buffer) => fromBinary(method.output, bytes),
    encode(method.input, request),
    sent,
  );
  const cancel = (): void => stream.cancel();
  signal?.addEventListener("abort", cancel);
  if (onAttached !== undefined) stream.once("metadata", onAttached);
  // The status of an abandoned stream is an "error" event too, and would throw unhandled.
  stream.on("error", () => undefined);
  try {
    // The next message is requested only after this one is taken: a slow reader slows the stream.
    for await (const message of stream) yield message;
  } catch (error) {
    throw failureFrom(error);
  } finally {
    signal?.removeEventListener("abort", cancel);
    stream.cancel();
  }
}

function conversationOn<I extends DescMessage, O extends DescMessage>(
  stream: ClientDuplexStream<Buffer, Buffer>,
  method: { readonly input: I; readonly output: O },
  signal: AbortSignal | undefined,
): Conversation<I, O> {
  let failure: unknown; // A failure before the first read would be lost otherwise.
  let isOver = false;
  const waiting = new Set<() => void>();
  const wake = (): void => {
    for (const resolve of waiting) resolve();
    waiting.clear();
  };
  const cancel = (): void => stream.cancel();
  signal?.addEventListener("abort", cancel, { once: true });
  stream.on("drain", wake);
  stream.on("error", (error) => (failure = error));
  stream.on("status", () => {
    isOver = true;
    signal?.removeEventListener("abort", cancel);
    wake();
  });
  return {
    send: (request) => {
      if (isOver) return true; // The reader of the responses gets the reason.
      return stream.write(Buffer.from(toBinary(method.input, create(method.input, request))));
    },
    drained: () =>
      isOver || !stream.writableNeedDrain
        ? Promise.resolve()
        : new Promise((resolve) => waiting.add(resolve)),
    end: () => void stream.end(),
    cancel,
    responses: responsesOf(stream, method.output, () => failure),
  };
}

async function* responsesOf<O extends DescMessage>(
  stream: ClientDuplexStream<Buffer, Buffer>,
  output: O,
  failure: () => unknown,
): AsyncGenerator<MessageShape<O>, void, undefined> {
  try {
    for await (const bytes of stream) yield fromBinary(output, bytes);
  } catch (error) {
    throw failureFrom(error);
  } finally {
    stream.cancel();
  }
  if (failure() !== undefined) throw failureFrom(failure());
}

function pathOf(method: { readonly name: string }): string {
  return `/${SessionService.typeName}/${method.name}`;
}

/** Encoded here, so that an unencodable request is reported as the caller's defect. */
function encode<I extends DescMessage>(input: I, request: MessageInitShape<I>): Buffer {
  return Buffer.from(toBinary(input, create(input, request)));
}

function passOn(bytes: Buffer): Buffer {
  return bytes;
}

function cancelled(signal: AbortSignal): RpcFailure {
  return new RpcFailure("CANCELLED", "cancelled before it began", { cause: signal.reason });
}
