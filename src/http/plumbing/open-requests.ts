import { shuttingDown } from "../../contract/context.ts";
import type { Principal } from "../../auth/principal.ts";
import type { ServiceError } from "@session-ledger/base/errors";
import type { ServedRequest } from "./call-context.ts";

/**
 * The requests in progress, so that a stop can end streams, refuse new requests and wait for
 * others. A request counts until its answer is sent, or its caller has left.
 */
export class OpenRequests {
  readonly #open = new Set<ServedRequest>();
  readonly #emptied = Promise.withResolvers<void>();
  /** The error for new requests; undefined while the service runs. */
  stopping: ServiceError | undefined;

  get count(): number {
    return this.#open.size;
  }

  enter(request: ServedRequest): void {
    this.#open.add(request);
  }

  leave(request: ServedRequest): void {
    this.#open.delete(request);
    this.#settle();
  }

  /** Ends the streams whose callers may not continue. */
  endRefused(refusalOf: (principal: Principal) => ServiceError | undefined): void {
    for (const request of this.#open) {
      if (!request.isStream) continue;
      const refusal = refusalOf(request.principal);
      if (refusal !== undefined) request.stop(refusal);
    }
  }

  /** Ends the streams; resolves when every answer was sent. */
  close(): Promise<void> {
    this.stopping = shuttingDown();
    for (const request of this.#open) request.stop(this.stopping);
    this.#settle();
    return this.#emptied.promise;
  }

  #settle(): void {
    if (this.stopping !== undefined && this.#open.size === 0) this.#emptied.resolve();
  }
}
