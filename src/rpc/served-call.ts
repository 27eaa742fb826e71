/**
 * One call, on grpc-js's lowest public layer, the intercepting call. The layer above it is skipped:
 * it makes an event emitter and a Writable per call, and sends a stream's messages one by one, each
 * after the previous one has left. 100,000 messages of 700 bytes take 0.58 s there and 0.13 s here,
 * where several messages share one frame of the connection (one h2load client, Node 24.21, grpc-js
 * 1.14).
 *
 *   decoded ── handler runs ── reply or status ──► ended ──► record
 *      │              │                              ▲
 *      └── refused ───┴── caller left, deadline, ────┘   `signal` is aborted; the handler may still
 *                         stop of the service            run, and `OpenCalls` waits for it
 *
 * A call ends once: later results are dropped, and only a defect is still logged. grpc-js refuses
 * some calls itself (a deadline, a frame that is too large or broken), always by `sendStatus` of
 * this same object. An interceptor does not see these refusals, so this class replaces
 * `sendStatus`.
 */
import { Metadata, type ServerInterceptingCallInterface, status } from "@grpc/grpc-js";
import { ServiceError } from "../base/errors.ts";
import { Call, type ConversationRecord } from "../contract/context.ts";
import type { MethodRecords } from "./call-records.ts";
import { statusOf } from "./status.ts";
import { type OwnStatus, transportRefusal } from "./transport-refusal.ts";

const OK: OwnStatus = { code: status.OK, details: "OK" };

export class ServedCall extends Call {
  readonly #wire: ServerInterceptingCallInterface;
  readonly #sendStatus: (status: OwnStatus) => void;
  readonly #records: MethodRecords;
  readonly #startedMs: number;
  #request: unknown;
  #describe: (() => ConversationRecord) | undefined;

  constructor(wire: ServerInterceptingCallInterface, records: MethodRecords) {
    super();
    this.#wire = wire;
    this.#records = records;
    this.#startedMs = records.startedMs();
    this.#sendStatus = wire.sendStatus.bind(wire);
    wire.sendStatus = (own) => this.fail(transportRefusal(own));
  }

  /** The span begins with the first bytes of the call; a call refused before that has no span. */
  tracedFrom(metadata: Metadata): void {
    this.span = this.#records.span(metadata);
  }

  /** Notes the request, for the record. */
  accept<T>(request: T): T {
    this.#request = request;
    return request;
  }

  /** For a call without a single request: `record` is called at the end of the call. */
  describedBy(record: () => ConversationRecord): void {
    this.#describe = record;
  }

  sendHeaders(): void {
    if (!this.hasEnded) this.#wire.sendMetadata(new Metadata());
  }

  /** `onFlushed` is called when the message has left, and never when the call ended before. */
  send(message: Buffer, onFlushed: () => void): void {
    if (!this.hasEnded) this.#wire.sendMessage(message, onFlushed);
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
      if (error.code === "internal" && !isAbort(error.cause)) this.#records.failedAfterEnd(error);
      return;
    }
    this.#end(error);
    this.#sendStatus(statusOf(error));
    this.ends(error);
  }

  /** grpc-js reports the end of the call, also when this class has ended it. */
  wasLeft(): void {
    if (this.hasEnded) return;
    const error = new ServiceError("cancelled", "CANCELLED", "the caller left");
    this.#end(error);
    this.ends(error);
  }

  #end(error: ServiceError | undefined): void {
    this.ends();
    const record = this.#describe?.();
    const request = record ?? this.#request;
    const startedMs = this.#startedMs;
    const counts = record?.counts;
    this.#records.ended({ startedMs, request, error, counts, span: this.span });
  }
}

/** The error with which Node's timers and streams reject when their signal is aborted. */
function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}
