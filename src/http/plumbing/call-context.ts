/**
 * A request as the handlers see it: a call with a signal. The call ends with its answer, or when
 * the caller leaves. A stream also ends when the service stops, and the reason of its signal then
 * says so.
 */
import type { ServerResponse } from "node:http";
import type { FastifyRequest } from "fastify";
import type { CallMemory, ConnectionMemory } from "../../auth/caller-memory.ts";
import { ANONYMOUS, type Principal } from "../../auth/principal.ts";
import { ServiceError } from "../../base/errors.ts";
import type { CallContext } from "../../contract/context.ts";
import type { Span } from "../../observability/trace.ts";

/** The objects of Node and the framework that a request has beside its bytes: an estimate. */
const REQUEST_BYTES = 16 * 1024;

/** The name of the property on fastify's request. */
export const SERVED_REQUEST = "servedRequest";

export class ServedRequest implements CallContext {
  readonly #stopping: () => ServiceError | undefined;
  #controller: AbortController | undefined;
  #abortedBy: ServiceError | undefined;
  #hasEnded = false;
  #isStream = false;
  #principal: Principal = ANONYMOUS;
  #memory: CallMemory | undefined;
  /** Ends the reading of the body. */
  onCut: ((error: ServiceError) => void) | undefined;
  span: Span | undefined;
  /** The refusal, for the record. */
  refusedBy: ServiceError | undefined;

  /**
   * `stopping` returns the error for a request that would become a stream during a stop of the
   * service.
   */
  constructor(stopping: () => ServiceError | undefined) {
    this.#stopping = stopping;
  }

  get principal(): Principal {
    return this.#principal;
  }

  /** Set before the route runs. */
  madeBy(principal: Principal): void {
    this.#principal = principal;
    this.#memory?.madeBy(principal);
  }

  /** Counts its memory from here on; false: there is no room for one more. */
  heldBy(connection: ConnectionMemory, response: ServerResponse): boolean {
    this.#memory = connection.call((error) => this.#cut(error, response));
    this.#memory.begin(REQUEST_BYTES);
    return this.#memory.charge.hasRoom;
  }

  get memory(): CallMemory | undefined {
    return this.#memory;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get isStream(): boolean {
    return this.#isStream;
  }

  /** Made on first use; most requests are over before any code could wait on it. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#abortedBy !== undefined) this.#controller.abort(this.#abortedBy);
    return this.#controller.signal;
  }

  /** A stream has no end of its own, so a stop must end it. */
  becomeStream(): void {
    const stopping = this.#stopping();
    if (stopping !== undefined) throw stopping;
    this.#isStream = true;
    this.working(false);
  }

  /** True while a handler does work that cannot be undone. */
  working(isWorking: boolean): void {
    if (this.#memory !== undefined) this.#memory.charge.canEnd = !isWorking;
  }

  /**
   * The service stops, or the caller's token has ended. A request with an end of its own runs to
   * it.
   */
  stop(reason: ServiceError): void {
    if (this.#isStream) this.#abort(reason);
  }

  /** The answer is complete, or the connection is gone. */
  closed(wasLeft: boolean): void {
    this.#hasEnded = true;
    this.#memory?.release();
    if (wasLeft) this.#abort(new ServiceError("cancelled", "CANCELLED", "the caller left"));
  }

  /**
   * This caller holds the most memory, and others need it. A started answer cannot be taken back.
   */
  #cut(error: ServiceError, response: ServerResponse): void {
    const canTell = this.#isStream ? !response.writableNeedDrain : !response.headersSent;
    this.refusedBy ??= error;
    this.onCut?.(error);
    this.#abort(error);
    if (!canTell) response.destroy();
  }

  #abort(reason: ServiceError): void {
    if (this.#abortedBy !== undefined) return;
    this.#hasEnded = true;
    this.#abortedBy = reason;
    this.refusedBy ??= reason;
    this.#controller?.abort(reason);
  }
}

/** Every request of an app with `serveCalls` has one. */
export function servedRequestOf(request: FastifyRequest): ServedRequest {
  return request.getDecorator<ServedRequest>(SERVED_REQUEST);
}

/** The context of a request that gets its answer even during a stop of the service. */
export function callContextOf(request: FastifyRequest): CallContext {
  return servedRequestOf(request);
}

/**
 * The context of a stream: a stop of the service ends it. Throws when the service is already
 * stopping.
 */
export function streamContextOf(request: FastifyRequest): CallContext {
  const served = servedRequestOf(request);
  served.becomeStream();
  return served;
}
