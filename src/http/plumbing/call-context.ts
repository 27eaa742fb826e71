/**
 * A request as the handlers see it: a call that ends with its answer, or when the caller leaves. A
 * stream also ends when the service stops, with that reason.
 */
import type { ServerResponse } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { ServiceError } from "@session-ledger/base/errors";
import { actorOf, type Principal } from "../../auth/principal.ts";
import { type Budget, CallMemory } from "../../base/budget.ts";
import { Call, type CallContext } from "../../contract/context.ts";

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

  /** The caller is known. Throws when no room is free for one more request of it. */
  admit(principal: Principal, budget: Budget, { raw }: FastifyReply): void {
    this.principal = principal;
    if (this.hasEnded) return; // The caller left meanwhile.
    const caller = actorOf(principal) ?? raw.socket ?? raw;
    this.memory = new CallMemory(budget, caller, { end: (error) => this.#cut(error, raw) });
  }

  /** A stream does not end by itself, so a stop must end it. */
  becomeStream(): void {
    const stopping = this.#stopping();
    if (stopping !== undefined) throw stopping;
    this.isStream = true;
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

  /** The memory of the request did not fit. A started answer cannot be taken back. */
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
