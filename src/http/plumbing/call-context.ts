/**
 * What a request is to the handlers: a call with a signal. It ends with its answer, or when the caller
 * left; a stream also ends when the service stops, and its signal then says so in its reason.
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

/** Where fastify keeps it. */
export const SERVED_REQUEST = "servedRequest";

export class ServedRequest implements CallContext {
  readonly #stopping: () => ServiceError | undefined;
  #controller: AbortController | undefined;
  #abortedBy: ServiceError | undefined;
  #hasEnded = false;
  #isStream = false;
  #principal: Principal = ANONYMOUS;
  #memory: CallMemory | undefined;
  /** Ends what reads the body. */
  onCut: ((error: ServiceError) => void) | undefined;
  span: Span | undefined;
  /** Why it was refused, for the record. */
  refusedBy: ServiceError | undefined;

  /** `stopping` tells a request that becomes a stream while the service stops that it may not. */
  constructor(stopping: () => ServiceError | undefined) {
    this.#stopping = stopping;
  }

  get principal(): Principal {
    return this.#principal;
  }

  /** Before the route is asked. */
  madeBy(principal: Principal): void {
    this.#principal = principal;
    this.#memory?.madeBy(principal);
  }

  /** Its memory is counted from here on; false: there is no room for one more. */
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

  /** Made when somebody asks for it; most requests are over before anybody could wait on it. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#abortedBy !== undefined) this.#controller.abort(this.#abortedBy);
    return this.#controller.signal;
  }

  /** It has no end of its own, so a stop has to end it. */
  becomeStream(): void {
    const stopping = this.#stopping();
    if (stopping !== undefined) throw stopping;
    this.#isStream = true;
    this.working(false);
  }

  /** A handler does what cannot be taken back, or is done with it. */
  working(isWorking: boolean): void {
    if (this.#memory !== undefined) this.#memory.charge.canEnd = !isWorking;
  }

  /** The service stops, or the caller's token did; what has an end of its own goes on to it. */
  stop(reason: ServiceError): void {
    if (this.#isStream) this.#abort(reason);
  }

  /** The answer has left, whole or not. */
  closed(wasLeft: boolean): void {
    this.#hasEnded = true;
    this.#memory?.release();
    if (wasLeft) this.#abort(new ServiceError("cancelled", "CANCELLED", "the caller left"));
  }

  /** Its caller holds the most, and others need the room. What is said already cannot be unsaid. */
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

/** Each request of an app that `serveCalls` was called with has one. */
export function servedRequestOf(request: FastifyRequest): ServedRequest {
  return request.getDecorator<ServedRequest>(SERVED_REQUEST);
}

/** The context of a request that will have its answer, whether the service stops or not. */
export function callContextOf(request: FastifyRequest): CallContext {
  return servedRequestOf(request);
}

/** The context of a stream: a stop of the service ends it. Throws when the service is stopping already. */
export function streamContextOf(request: FastifyRequest): CallContext {
  const served = servedRequestOf(request);
  served.becomeStream();
  return served;
}
