import { shuttingDown } from "../contract/context.ts";
import type { Principal } from "../auth/principal.ts";
import type { ServiceError } from "@session-ledger/base/errors";

/** A call that does not end by itself, so a stop must end it. */
interface OpenStreamCall {
  /** Undefined: anyone may make the call. */
  readonly principal?: Principal;
  /** Answers with the error, unless the call has ended already. */
  fail(error: ServiceError): void;
  /** Called at a regular interval. */
  tick?(): void;
}

/**
 * The calls in progress, so that a stop can end streams, refuse new calls and wait for others. A
 * call counts until its handler is done, even when the caller has left.
 */
export class OpenCalls {
  readonly #streams = new Set<OpenStreamCall>();
  readonly #emptied = Promise.withResolvers<void>();
  handlersRunning = 0;
  #isClosed = false;

  /** Throws when the server stops. Each `enter` that returned needs its `leave`. */
  enter(stream?: OpenStreamCall): void {
    if (this.#isClosed) throw shuttingDown();
    this.handlersRunning += 1;
    if (stream !== undefined) this.#streams.add(stream);
  }

  leave(stream?: OpenStreamCall): void {
    this.handlersRunning -= 1;
    if (stream !== undefined) this.#streams.delete(stream);
    if (this.#isClosed && this.handlersRunning === 0) this.#emptied.resolve();
  }

  /** For a stream of another package, such as health: a stop ends it, and does not wait for it. */
  adopt(stream: OpenStreamCall): () => void {
    this.#streams.add(stream);
    return () => this.#streams.delete(stream);
  }

  /** Ends the streams whose callers may not continue. */
  tick(refusalOf: (principal: Principal) => ServiceError | undefined): void {
    for (const stream of this.#streams) {
      const error = stream.principal === undefined ? undefined : refusalOf(stream.principal);
      if (error === undefined) stream.tick?.();
      else stream.fail(error);
    }
  }

  /** Ends the streams with UNAVAILABLE and takes no new call; resolves when no handler runs. */
  close(): Promise<void> {
    this.#isClosed = true;
    for (const stream of this.#streams) stream.fail(shuttingDown());
    if (this.handlersRunning === 0) this.#emptied.resolve();
    return this.#emptied.promise;
  }
}
