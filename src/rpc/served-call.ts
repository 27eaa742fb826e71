/**
 * One call, on grpc-js's lowest public layer, the intercepting call. The layer above it is left out:
 * it makes an event emitter and a Writable a call, and hands a stream's messages over one by one, each
 * when the one before has left: 100,000 messages of 700 bytes take 0.58 s by it and 0.13 s here, with
 * several of them in one frame of the connection (one h2load client, Node 24.21, grpc-js 1.14).
 *
 *   decoded ── handler runs ── reply or status ──► ended ──► record
 *      │              │                              ▲
 *      └── refused ───┴── caller left, deadline, ────┘   `signal` is aborted; the handler may still
 *                         stop of the service            run, and `OpenCalls` waits for it
 *
 * A call ends once: whatever comes later is dropped, only a defect is still logged. grpc-js refuses
 * some calls itself (a deadline, a frame that is too large or broken), always by `sendStatus` of this
 * same object, which is why it is replaced: an interceptor does not see what goes on below it.
 */
import { Metadata, type ServerInterceptingCallInterface, status } from "@grpc/grpc-js";
import type { CallMemory } from "../auth/caller-memory.ts";
import { ANONYMOUS, type Principal } from "../auth/principal.ts";
import { ServiceError } from "../base/errors.ts";
import type { CallContext, ConversationRecord } from "../contract/context.ts";
import type { Span } from "../observability/trace.ts";
import type { CallRecords } from "./call-records.ts";
import { statusOf } from "./status.ts";
import { type OwnStatus, transportRefusal } from "./transport-refusal.ts";

const OK: OwnStatus = { code: status.OK, details: "OK" };

export class ServedCall implements CallContext {
  readonly #wire: ServerInterceptingCallInterface;
  readonly #sendStatus: (status: OwnStatus) => void;
  readonly #records: CallRecords;
  readonly #startedMs: number;
  #principal: Principal = ANONYMOUS;
  memory: CallMemory | undefined;
  #span: Span | undefined;
  #request: unknown;
  #describe: (() => ConversationRecord) | undefined;
  #hasEnded = false;
  #abortedBy: ServiceError | undefined;
  #controller: AbortController | undefined;

  constructor(wire: ServerInterceptingCallInterface, records: CallRecords) {
    this.#wire = wire;
    this.#records = records;
    this.#startedMs = records.startedMs();
    this.#sendStatus = wire.sendStatus.bind(wire);
    wire.sendStatus = (own) => this.fail(transportRefusal(own));
  }

  get principal(): Principal {
    return this.#principal;
  }

  /** Before the handler is asked. */
  madeBy(principal: Principal): void {
    this.#principal = principal;
    this.memory?.madeBy(principal);
  }

  /** From the first that came of the call; what is refused before has no span. */
  tracedFrom(metadata: Metadata): void {
    this.#span = this.#records.span(metadata);
  }

  get span(): Span | undefined {
    return this.#span;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Made when a handler asks for it; most unary calls are over before anybody could wait on it. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#abortedBy !== undefined) this.#controller.abort(this.#abortedBy);
    return this.#controller.signal;
  }

  /** The request, for the record. */
  accept<T>(request: T): T {
    this.#request = request;
    return request;
  }

  /** Of a call without a single request: asked when it ends. */
  describedBy(record: () => ConversationRecord): void {
    this.#describe = record;
  }

  sendHeaders(): void {
    if (!this.#hasEnded) this.#wire.sendMetadata(new Metadata());
  }

  /** `onFlushed` is called when the message has left, and never when the call ended before. */
  send(message: Buffer, onFlushed: () => void): void {
    if (!this.#hasEnded) this.#wire.sendMessage(message, onFlushed);
  }

  succeed(): void {
    if (this.#hasEnded) return;
    this.#end(undefined);
    this.#sendStatus(OK);
  }

  /** Anything thrown may come here; what is no ServiceError is a defect. */
  fail(cause: unknown): void {
    const error = ServiceError.from(cause);
    if (this.#hasEnded) {
      if (error.code === "internal" && !isAbort(error.cause)) this.#records.failedAfterEnd(error);
      return;
    }
    this.#end(error);
    this.#sendStatus(statusOf(error));
    this.#abort(error);
  }

  /** grpc-js says that a call is over, whichever way: ours included. */
  wasLeft(): void {
    if (this.#hasEnded) return;
    const error = new ServiceError("cancelled", "CANCELLED", "the caller left");
    this.#end(error);
    this.#abort(error);
  }

  #end(error: ServiceError | undefined): void {
    this.#hasEnded = true;
    const record = this.#describe?.();
    const request = record ?? this.#request;
    const startedMs = this.#startedMs;
    const counts = record?.counts;
    this.#records.ended({ startedMs, request, error, counts, span: this.#span });
  }

  #abort(error: ServiceError): void {
    this.#abortedBy = error;
    this.#controller?.abort(error);
  }
}

/** What timers and streams of Node reject with when their signal is aborted. */
function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}
