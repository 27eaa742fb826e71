import { RenewedMap } from "../base/renewed-map.ts";
import { shuttingDown } from "../contract/context.ts";
import type { Principal } from "../auth/principal.ts";
import type { ServiceError } from "@session-ledger/base/errors";

export interface OpenCall {
  /** The call does not end by itself, so a stop must end it, and its caller may lose the right to it. */
  readonly isStream: boolean;
  /** True: a handler works on the call, so its caller is known. */
  readonly isHandling?: boolean;
  /** Undefined: anyone may make the call. */
  readonly principal?: Principal;
  /** Answers with the error, unless the call has ended already. */
  fail(error: ServiceError): void;
  /** Called at a regular interval. */
  tick?(): void;
}

/**
 * The calls in progress, so that late ones end, and so that a stop can end streams, refuse new calls
 * and wait for others. A handler counts until it is done, even when the caller has left.
 */
export class OpenCalls {
  /** From the beginning of a call until its last byte has left. */
  readonly #calls = new RenewedMap<OpenCall, OpenCall>();
  readonly #emptied = Promise.withResolvers<void>();
  handlersRunning = 0;
  #isClosed = false;

  add(call: OpenCall): void {
    this.#calls.set(call, call);
  }

  remove(call: OpenCall): void {
    this.#calls.delete(call);
  }

  /** A handler begins. Throws when the server stops. Each `enter` that returned needs its `leave`. */
  enter(): void {
    if (this.#isClosed) throw shuttingDown();
    this.handlersRunning += 1;
  }

  leave(): void {
    this.handlersRunning -= 1;
    if (this.#isClosed && this.handlersRunning === 0) this.#emptied.resolve();
  }

  /** Ends late calls, and the streams whose callers may not continue. */
  tick(refusalOf: (principal: Principal) => ServiceError | undefined): void {
    for (const call of this.#calls.keys()) {
      const { isStream, isHandling = false, principal } = call;
      const isKnown = isStream && isHandling && principal !== undefined;
      const error = isKnown ? refusalOf(principal) : undefined;
      if (error === undefined) call.tick?.();
      else call.fail(error);
    }
  }

  /** Ends the streams with UNAVAILABLE and takes no new call; resolves when no handler runs. */
  close(): Promise<void> {
    this.#isClosed = true;
    for (const call of this.#calls.keys()) if (call.isStream) call.fail(shuttingDown());
    if (this.handlersRunning === 0) this.#emptied.resolve();
    return this.#emptied.promise;
  }
}
