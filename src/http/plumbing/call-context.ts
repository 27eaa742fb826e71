/**
 * A request as the handlers see it: a call that ends with its answer, or when the caller leaves. A
 * stream also ends when the service stops, with that reason.
 */
import type { ServerResponse } from "node:http";
import type { FastifyRequest } from "fastify";
import type { ConnectionMemory } from "../../auth/caller-memory.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { Call, type CallContext } from "../../contract/context.ts";

/** The objects of Node and the framework that a request has in addition to its bytes: an estimate. */
const REQUEST_BYTES = 16 * 1024;

/** The name of the property on fastify's request. */
export const SERVED_REQUEST = "servedRequest";

export class ServedRequest extends Call {
  readonly #stopping: () => ServiceError | undefined;
  isStream = false;
  /** Ends the reading of the body. */
  onCut: ((error: ServiceError) => void) | undefined;
  /** The refusal, for the record. */
  refusal: ServiceError | undefined;

  /** `stopping` returns the error for a request that would become a stream during a stop. */
  constructor(stopping: () => ServiceError | undefined) {
    super();
    this.#stopping = stopping;
  }

  /** Counts its memory from here on; false: no room is free for one more. */
  chargeTo(connection: ConnectionMemory, response: ServerResponse): boolean {
    this.memory = connection.call((error) => this.#cut(error, response));
    this.memory.begin(REQUEST_BYTES);
    return this.memory.lease.hasRoom;
  }

  /** A stream does not end by itself, so a stop must end it. */
  becomeStream(): void {
    const stopping = this.#stopping();
    if (stopping !== undefined) throw stopping;
    this.isStream = true;
    this.setWorking(false);
  }

  /** True while a handler does work that cannot be undone. */
  setWorking(isWorking: boolean): void {
    if (this.memory !== undefined) this.memory.lease.canRevoke = !isWorking;
  }

  /** The service stops, or the token has ended. Any other request than a stream continues. */
  stop(reason: ServiceError): void {
    if (this.isStream) this.#abort(reason);
  }

  /** The answer is complete, or the connection is gone. */
  onClose(wasLeft: boolean): void {
    this.markEnded();
    this.memory?.release();
    if (wasLeft) this.#abort(new ServiceError("cancelled", "CANCELLED", "the caller left"));
  }

  /** Others need this caller's memory. A started answer cannot be taken back. */
  #cut(error: ServiceError, response: ServerResponse): void {
    const canTell = this.isStream ? !response.writableNeedDrain : !response.headersSent;
    this.refusal ??= error;
    this.onCut?.(error);
    this.#abort(error);
    if (!canTell) response.destroy();
  }

  #abort(reason: ServiceError): void {
    this.refusal ??= reason;
    this.markEnded(reason);
  }
}

/** The call of a request, which gets its answer even during a stop of the service. */
export function callContextOf(request: FastifyRequest): ServedRequest {
  return request.getDecorator<ServedRequest>(SERVED_REQUEST);
}

/** A stop of the service ends a stream. Throws when the service is stopping already. */
export function streamContextOf(request: FastifyRequest): CallContext {
  const served = callContextOf(request);
  served.becomeStream();
  return served;
}
