/**
 * One call of ours, from its headers to its last byte, on grpc-js's lowest public layer, the
 * intercepting call. The layer above makes an event emitter and a Writable per call and sends messages
 * one by one: 100,000 of 700 bytes take 0.58 s in it and 0.13 s here, where they share frames (one
 * h2load client, Node 24.21, grpc-js 1.14).
 *
 *   admitted     the token is verified; memory is reserved for the call, and for each large message
 *                when its head has arrived                                    admit, onMessageHead
 *   decoded      the bytes are a message                                      codec.ts
 *   authorised   the caller has the right, for the session of the request     handlers/authorised.ts
 *   handled      the handler answers, or throws                               the adapters
 *   encoded      the answer is bytes, whose memory the call holds             codec.ts
 *   recorded     one line, one count, one span                                records.ts
 *   ended        the status is sent; the memory is released when the last byte has left
 *
 * The adapters are one file a kind: unary.ts, server-stream.ts, bidi-stream.ts.
 *
 * A call ends once for its caller: later results are dropped, and only a defect is still logged. The
 * handler may still run, and `OpenCalls` waits for it. grpc-js refuses some calls itself (a deadline, a
 * broken frame), by `sendStatus`, which this class replaces.
 */
import { constants, type ServerHttp2Stream } from "node:http2";
import { Metadata, type ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import type { Authenticator } from "../auth/authenticator.ts";
import { actorOf, type Principal } from "../auth/principal.ts";
import {
  type Budget,
  CallMemory,
  serverBusy,
  SMALL_BYTES,
  UNREAD_LIMIT_MS,
} from "../base/budget.ts";
import { type BidiRecord, Call, isAbort } from "../contract/context.ts";
import { type Decompressor, type Encoding, isCompressed } from "./decompress.ts";
import type { EncodedAnswer } from "./codec.ts";
import { HEAD_BYTES, IncomingBytes, type IncomingOwner } from "./incoming.ts";
import type { OpenCall, OpenCalls } from "./open-calls.ts";
import type { MethodRecords } from "./records.ts";
import { OK, type OwnStatus, statusOf, transportRefusal } from "./status.ts";

export type Callers = Pick<Authenticator, "asks" | "authenticate">;

/** The parts that all calls share. */
export interface CallParts {
  readonly openCalls: OpenCalls;
  readonly callers: Callers;
  readonly budget: Budget;
  readonly decompressor: Decompressor;
  readonly requestBytesMax: number;
  /** Ends the connection of a caller who attacks. */
  readonly cut: (stream: ServerHttp2Stream) => void;
}

/** The parts that the adapter of a method needs. */
export interface MethodDeps extends CallParts {
  readonly records: MethodRecords;
}

/** A call in HTTP/2, when only its headers have arrived. */
export interface IncomingCall {
  readonly stream: ServerHttp2Stream;
  /** The headers are above the limit; the call must be reset. */
  readonly isTooLarge: boolean;
  readonly encoding: Encoding | undefined;
}

/** The same call in grpc-js and in HTTP/2. */
export interface WireCall {
  readonly wire: ServerInterceptingCallInterface;
  readonly arrived: IncomingCall;
}

/** The interval of `tick`. */
export const TICK_MS = 1_000;
/** The ticks in which a request must be complete, and in which an answer must move. */
export const LATE_TICKS = UNREAD_LIMIT_MS / TICK_MS;

/** A slow reader gets this long to take the status of a call, 8 s in all. */
const FIRST_LOOK_MS = 2;
const LAST_LOOK_MS = 4_096;
/** A call that must give its memory back gets this long, 62 ms in all. */
const LAST_BUSY_LOOK_MS = 32;

/** grpc-js copies a message behind its head, which is cheaper than two writes below this size. */
const COPIED_BYTES_MAX = 16 * 1024;

export function writeHead(into: Buffer, at: number, messageBytes: number): void {
  into[at] = 0; // Not compressed.
  into.writeUInt32BE(messageBytes, at + 1);
}

export abstract class ServedCall extends Call implements IncomingOwner, OpenCall {
  protected readonly deps: MethodDeps;
  protected readonly wire: ServerInterceptingCallInterface;
  protected readonly stream: ServerHttp2Stream;
  protected readonly incoming: IncomingBytes;
  protected readonly encoding: Encoding | undefined;
  readonly #sendStatus: (status: OwnStatus) => void;
  readonly #startedMs: number;
  /** The decoded request, for the record. */
  request: unknown;
  #describe: (() => BidiRecord) | undefined;
  #isHandling = false;
  #isClosed = false;

  constructor(deps: MethodDeps, { wire, arrived }: WireCall) {
    super();
    this.deps = deps;
    this.wire = wire;
    this.stream = arrived.stream;
    this.encoding = arrived.encoding;
    this.#startedMs = deps.records.clock.monotonicMs();
    this.incoming = new IncomingBytes(arrived.stream, this);
    this.#sendStatus = wire.sendStatus.bind(wire);
    wire.sendStatus = (own) => this.fail(transportRefusal(own));
    deps.openCalls.add(this);
  }

  /** Continues the call when its caller is known, which is at once for most calls. */
  onReceiveMetadata(metadata: Metadata): void {
    const { callers, records } = this.deps;
    if (records.tracer !== undefined) this.span = records.span(records.tracer, metadata);
    try {
      if (callers.asks) {
        const principal = callers.authenticate(metadata.get("authorization").map(String));
        if (principal instanceof Promise) return void this.#admitLater(principal);
        this.principal = principal;
      }
      this.memory = this.reserve();
    } catch (error) {
      return this.fail(error);
    }
    this.onAdmitted();
  }

  async #admitLater(pending: Promise<Principal>): Promise<void> {
    try {
      this.principal = await pending;
      if (this.hasEnded) return;
      this.memory = this.reserve();
    } catch (error) {
      return this.fail(error);
    }
    this.onAdmitted();
  }

  /** The caller may make the call, and memory is reserved for it. */
  protected abstract onAdmitted(): void;

  /** Throws when no room is free for one more call of this caller. */
  protected reserve(sizes?: {
    readonly fixedBytes: number;
    readonly includedBytes: number;
  }): CallMemory {
    const caller = actorOf(this.principal) ?? this.stream.session ?? this.stream;
    return new CallMemory(this.deps.budget, caller, { ...sizes, end: () => this.failBusy() });
  }

  abstract onReceiveMessage(bytes: Buffer): void;
  abstract onReceiveHalfClose(): void;
  abstract onMessageHead(bytes: number, isCompressed: boolean): boolean;
  abstract onPieces(bytes: number): boolean;
  abstract get isStream(): boolean;
  abstract tick(): void;

  onFlood(): void {
    this.deps.cut(this.stream);
  }

  /** Calls `then` with the message, at once if it was not compressed. */
  protected decompress(message: Buffer, then: (bytes: Buffer) => void): void {
    const { encoding } = this;
    if (encoding === undefined || !isCompressed(message)) return then(message);
    void this.deps.decompressor.decompress(message, { encoding, call: this }, then);
  }

  /** For a call without a single request: `record` is called at the end of the call. */
  setRecord(record: () => BidiRecord): void {
    this.#describe = record;
  }

  /** A handler works on the call, and a stop waits for it. Throws when the server stops. */
  startHandling(): void {
    this.deps.openCalls.enter();
    this.#isHandling = true;
  }

  stopHandling(): void {
    this.#isHandling = false;
    this.deps.openCalls.leave();
    if (this.#isClosed) this.memory?.release();
  }

  get isHandling(): boolean {
    return this.#isHandling;
  }

  sendHeaders(): void {
    if (!this.hasEnded) this.wire.sendMetadata(new Metadata());
  }

  /** Sends a message, in its parts. `onFlushed` is never called when the call ended before. */
  sendMessage(parts: readonly Buffer[], bytes: number, onFlushed: () => void): void {
    if (this.hasEnded) return;
    if (bytes <= COPIED_BYTES_MAX) {
      const [first] = parts;
      const message = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
      return this.wire.sendMessage(message, onFlushed);
    }
    const head = Buffer.allocUnsafe(HEAD_BYTES);
    writeHead(head, 0, bytes);
    this.sendHeaders();
    this.stream.cork();
    this.stream.write(head);
    for (const part of parts.slice(0, -1)) this.stream.write(part);
    this.sendFramed(parts.at(-1) ?? head, onFlushed);
    this.stream.uncork();
  }

  /** The same for messages that have their heads already; the headers were sent. */
  sendFramed(messages: Buffer, onFlushed: () => void): void {
    if (this.hasEnded || this.stream.destroyed) return;
    this.stream.write(messages, (error) => {
      if (error === null || error === undefined) onFlushed();
      else this.fail(new ServiceError("cancelled", "CANCELLED", "the connection broke"));
    });
  }

  succeed(): void {
    if (this.hasEnded) return;
    this.#end(undefined);
    this.#sendStatus(OK);
  }

  /** Takes any thrown value; anything that is not a ServiceError is a defect. */
  fail(cause: unknown): void {
    const error = ServiceError.from(cause);
    if (this.hasEnded) {
      const isDefect = error.code === "internal" && !isAbort(error.cause);
      if (isDefect) this.deps.records.failedAfterEnd(error);
      return;
    }
    this.#end(error);
    this.#sendStatus(statusOf(error));
    this.markEnded(error);
  }

  /** No room is free for what the call needs. The status cannot leave behind an unread answer. */
  failBusy(): void {
    const hasAnswer = this.stream.headersSent;
    this.fail(serverBusy());
    if (hasAnswer) setImmediate(() => this.#reset(FIRST_LOOK_MS, LAST_BUSY_LOOK_MS));
  }

  /** No byte of the answer has left for too long. Its status could not leave either. */
  endUnread(): void {
    const message = "the answer was not read in time";
    this.fail(new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message));
    if (!this.stream.closed) this.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  protected failLate(): void {
    const message = "the request did not arrive in time";
    this.fail(new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message));
  }

  /**
   * grpc-js reports that the status has left, or that the caller has. While the caller still sends,
   * the stream and grpc-js's copy of the request stay. RFC 9113, 8.1, lets a server end such a stream
   * without an error.
   */
  onCancel(): void {
    if (!this.hasEnded) {
      const error = new ServiceError("cancelled", "CANCELLED", "the caller left");
      this.#end(error);
      this.markEnded(error);
    }
    const { stream } = this;
    this.incoming.isDropping = true;
    if (this.incoming.hasEnded || stream.destroyed) return this.#onClose();
    stream.once("close", () => this.#onClose());
    if (!stream.closed) setImmediate(() => this.#reset(FIRST_LOOK_MS, LAST_LOOK_MS));
  }

  /** A reset overtakes a status that waits after answers, so it waits until the status was sent. */
  #reset(nextLookMs: number, lastLookMs: number): void {
    const { stream } = this;
    if (stream.closed || stream.destroyed) return;
    if (stream.state.localClose === 1) {
      if (!this.incoming.hasEnded) stream.close(constants.NGHTTP2_NO_ERROR);
      return;
    }
    if (nextLookMs > lastLookMs) return stream.close(constants.NGHTTP2_CANCEL);
    setTimeout(() => this.#reset(nextLookMs * 2, lastLookMs), nextLookMs).unref();
  }

  #onClose(): void {
    this.#isClosed = true;
    this.deps.openCalls.remove(this);
    if (!this.#isHandling) this.memory?.release();
  }

  #end(error: ServiceError | undefined): void {
    this.markEnded();
    const record = this.#describe?.();
    this.deps.records.recordEnd({
      startedMs: this.#startedMs,
      request: record ?? this.request,
      error,
      counts: record?.counts,
      span: this.span,
    });
  }
}

const INCOMPLETE = { field: "", description: "the call ended before a whole request had come" };

interface OneRequestOptions {
  readonly isStream: boolean;
  /** Called with the bytes of the request when they are complete. */
  readonly onRequest: (call: OneRequestCall, bytes: Buffer) => Promise<void>;
}

/** A call with a single request, and one answer or a stream of answers. */
export class OneRequestCall extends ServedCall {
  readonly isStream: boolean;
  readonly #onRequest: OneRequestOptions["onRequest"];
  #message: Buffer | undefined;
  #requestBytes = 0;
  #lateTicks = 0;
  /** Called at each tick while the handler works. */
  onHandlingTick: (() => void) | undefined;

  constructor(deps: MethodDeps, call: WireCall, { isStream, onRequest }: OneRequestOptions) {
    super(deps, call);
    this.isStream = isStream;
    this.#onRequest = onRequest;
  }

  protected onAdmitted(): void {
    if (this.#hold(this.#requestBytes)) this.wire.startRead();
  }

  /** Most requests come so, and cost less than through the Readable and the decoder of grpc-js. */
  onWholeMessage(chunk: Buffer): boolean {
    const isTooLarge = chunk.length - HEAD_BYTES > this.deps.requestBytesMax;
    if (isTooLarge || this.#message !== undefined) return false;
    // A copy: the chunk would keep its whole read alive as long as the call, which may be a watch.
    this.#message = Buffer.from(chunk).subarray(HEAD_BYTES);
    return true;
  }

  onReceiveMessage(bytes: Buffer): void {
    if (this.#message !== undefined) {
      const why = "the method takes one request, and a second one came";
      return this.fail(new ServiceError("unimplemented", "NOT_IMPLEMENTED", why));
    }
    this.#message = bytes;
    this.wire.startRead(); // Needed to learn the end of the requests.
  }

  onReceiveHalfClose(): void {
    const message = this.#message;
    if (message === undefined) {
      // So looks a frame that is shorter than stated, and, for a moment, a caller who left.
      setImmediate(() => this.fail(invalidArgument([INCOMPLETE])));
    } else if (this.encoding === undefined) {
      void this.#onRequest(this, message);
    } else {
      // Few messages are decompressed at once, so their size is reserved when it is known.
      this.decompress(message, (bytes) => {
        if (bytes === message || this.#hold(bytes.length)) void this.#onRequest(this, bytes);
      });
    }
  }

  /** Sends the answer of a unary call. Throws when no room is free for it. */
  answer({ parts, onFlushed }: EncodedAnswer): void {
    let bytes = 0;
    for (const part of parts) bytes += part.length;
    const more = bytes - Math.max(this.#requestBytes, SMALL_BYTES);
    if (more > 0 && this.memory?.resize("answer", more) === false) throw serverBusy();
    this.sendMessage(parts, bytes, onFlushed);
    this.succeed();
  }

  onMessageHead(bytes: number): boolean {
    // grpc-js refuses a larger one.
    return bytes > this.deps.requestBytesMax || this.#hold(bytes);
  }

  onPieces(bytes: number): boolean {
    return this.#hold(this.#requestBytes + bytes);
  }

  tick(): void {
    if (this.isHandling) this.onHandlingTick?.();
    // The caller must act: send the rest of its request, or read the answer.
    const awaitsCaller = !this.isHandling && (this.hasEnded || !this.incoming.hasEnded);
    this.#lateTicks = awaitsCaller ? this.#lateTicks + 1 : 0;
    if (this.#lateTicks <= LATE_TICKS) return;
    if (this.hasEnded) this.endUnread();
    else this.failLate();
  }

  /** Before the caller is known, the bytes are only noted; a window at most can arrive. */
  #hold(bytes: number): boolean {
    this.#requestBytes = bytes;
    if (bytes <= SMALL_BYTES || this.memory === undefined) return true;
    if (this.memory.resize("request", bytes)) return true;
    this.failBusy();
    return false;
  }
}

/** A call of a method without a handler; an unknown caller is refused before. */
export class UnservedCall extends OneRequestCall {
  readonly #refusal: ServiceError;

  constructor(deps: MethodDeps, call: WireCall, refusal: ServiceError) {
    super(deps, call, { isStream: false, onRequest: () => Promise.resolve() });
    this.#refusal = refusal;
  }

  protected override onAdmitted(): void {
    this.fail(this.#refusal);
  }
}
