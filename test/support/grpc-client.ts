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
import { anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";
import {
  type ChannelCredentials,
  Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ClientOptions,
  credentials,
  Metadata,
  type ServiceError as GrpcError,
  status,
} from "@grpc/grpc-js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "@session-ledger/proto/google/rpc/error_details_pb";
import { StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import type { Violation } from "@session-ledger/base/errors";
import { methodDefinitionOf } from "../../src/rpc/codec.ts";

export interface CallOptions {
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** The refusal of a call with its details. */
export class RpcFailure extends Error {
  override readonly name = "RpcFailure";
  /** gRPC's name of the status. */
  readonly code: string;
  readonly reason: string | undefined;
  readonly domain: string | undefined;
  readonly violations: readonly Violation[];
  readonly retryAfterMs: number | undefined;

  constructor(error: GrpcError) {
    super(error.details, { cause: error });
    this.code = status[error.code];
    const [bytes] = error.metadata.get("grpc-status-details-bin");
    const details = Buffer.isBuffer(bytes) ? fromBinary(StatusSchema, bytes).details : [];
    const infos = details.map((any) => anyUnpack(any, ErrorInfoSchema));
    const info = infos.find((found) => found !== undefined);
    this.reason = info?.reason;
    this.domain = info?.domain;
    this.violations = details.flatMap((any) =>
      (anyUnpack(any, BadRequestSchema)?.fieldViolations ?? []).map((violation) => ({
        field: violation.field,
        description: violation.description,
      })),
    );
    const delays = details.map((any) => anyUnpack(any, RetryInfoSchema)?.retryDelay);
    const delay = delays.find((found) => found !== undefined);
    this.retryAfterMs = delay === undefined ? undefined : durationMs(delay);
  }
}

/** Messages in the order they arrive; `return` or a `break` cancels the call. Failures are RpcFailures. */
export interface MessageStream<T> extends AsyncIterableIterator<T> {
  /** Resolves when the headers of the server arrive: the call is attached. */
  readonly attached: Promise<void>;
  cancel(): void;
}

/** A gRPC client of any generated service, for tests. */
export class RpcClient {
  readonly #connect: () => Client;
  #connected: Client | undefined;

  /** The address may be a function, which is called with the first request. */
  constructor(
    address: string | (() => string),
    options: ClientOptions = {},
    channel: ChannelCredentials = credentials.createInsecure(),
  ) {
    this.#connect = () =>
      new Client(typeof address === "string" ? address : address(), channel, {
        // Each client has its own connection; grpc-js would share one for each address.
        "grpc.use_local_subchannel_pool": 1,
        ...options,
      });
  }

  get #client(): Client {
    return (this.#connected ??= this.#connect());
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const bytes = toBinary(method.input, create(method.input, request));
    return fromBinary(method.output, await this.unaryBytes(method, bytes, options));
  }

  /** For requests that no encoder would make. */
  unaryBytes(
    method: Pick<DescMethodUnary, "methodKind" | "parent" | "name"> | string,
    bytes: Uint8Array,
    options: CallOptions = {},
  ): Promise<Buffer> {
    const path = typeof method === "string" ? method : `/${method.parent.typeName}/${method.name}`;
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    const call = this.#client.makeUnaryRequest(
      path,
      identity,
      identity,
      Buffer.from(bytes),
      metadataOf(options),
      grpcOptionsOf(options),
      (error, response) => {
        if (error !== null) reject(new RpcFailure(error));
        else resolve(response ?? Buffer.alloc(0));
      },
    );
    options.signal?.addEventListener("abort", () => call.cancel(), { once: true });
    return promise;
  }

  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): MessageStream<MessageShape<O>> {
    const call = this.#client.makeServerStreamRequest(
      methodDefinitionOf(method).path,
      identity,
      identity,
      Buffer.from(toBinary(method.input, create(method.input, request))),
      metadataOf(options),
      grpcOptionsOf(options),
    );
    return messagesOf(call, method.output, options);
  }

  bidiStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    options: CallOptions = {},
  ): MessageStream<MessageShape<O>> & {
    send(request: MessageInitShape<I>): void;
    sendBytes(bytes: Uint8Array): void;
    end(): void;
  } {
    const call: ClientDuplexStream<Buffer, Buffer> = this.#client.makeBidiStreamRequest(
      methodDefinitionOf(method).path,
      identity,
      identity,
      metadataOf(options),
      grpcOptionsOf(options),
    );
    return Object.assign(messagesOf(call, method.output, options), {
      send: (request: MessageInitShape<I>) =>
        void call.write(Buffer.from(toBinary(method.input, create(method.input, request)))),
      sendBytes: (bytes: Uint8Array) => void call.write(Buffer.from(bytes)),
      end: () => call.end(),
    });
  }

  close(): void {
    this.#connected?.close();
  }
}

function messagesOf<O extends DescMessage>(
  call: ClientReadableStream<Buffer> | ClientDuplexStream<Buffer, Buffer>,
  output: O,
  options: CallOptions,
): MessageStream<MessageShape<O>> {
  options.signal?.addEventListener("abort", () => call.cancel(), { once: true });
  let failure: Error | undefined; // One that came before the first read would be lost.
  const attached = new Promise<void>((resolve, reject) => {
    call.once("metadata", () => resolve());
    call.on("error", (error) => {
      failure = error;
      reject(error);
    });
  });
  attached.catch(() => undefined); // The reader of the messages gets the failure.
  const messages = (async function* () {
    try {
      for await (const bytes of call) yield fromBinary(output, bytes);
      if (failure !== undefined) throw failure;
    } catch (error) {
      throw isGrpcError(error) ? new RpcFailure(error) : error;
    } finally {
      call.cancel();
    }
  })();
  return Object.assign(messages, { attached, cancel: () => call.cancel() });
}

function isGrpcError(error: unknown): error is GrpcError {
  return error instanceof Error && "details" in error && "metadata" in error;
}

function metadataOf(options: CallOptions): Metadata {
  const metadata = new Metadata();
  for (const [key, value] of Object.entries(options.metadata ?? {})) metadata.set(key, value);
  return metadata;
}

function grpcOptionsOf(options: CallOptions): { deadline?: number } {
  return options.deadlineMs === undefined ? {} : { deadline: Date.now() + options.deadlineMs };
}

function identity(bytes: Buffer): Buffer {
  return bytes;
}
