import type { Principal } from "../../auth/principal.ts";
import { ServiceError } from "../../base/errors.ts";
import type { ServedRequest } from "./call-context.ts";

/**
 * The requests that are being answered, so that a stop can end the streams, turn new requests away and
 * wait for what still runs. A request counts until its answer has left, or its caller.
 */
export class OpenRequests {
  readonly #open = new Set<ServedRequest>();
  readonly #emptied = Promise.withResolvers<void>();
  #stopping: ServiceError | undefined;

  get count(): number {
    return this.#open.size;
  }

  /** Why nothing new is taken; undefined while the service runs. */
  get stopping(): ServiceError | undefined {
    return this.#stopping;
  }

  enter(request: ServedRequest): void {
    this.#open.add(request);
  }

  leave(request: ServedRequest): void {
    this.#open.delete(request);
    this.#settle();
  }

  /** Ends the streams of those who may not go on. */
  endRefused(refusalOf: (principal: Principal) => ServiceError | undefined): void {
    for (const request of this.#open) {
      if (!request.isStream) continue;
      const refusal = refusalOf(request.principal);
      if (refusal !== undefined) request.stop(refusal);
    }
  }

  /** Ends the streams; resolves when every answer has left. */
  close(): Promise<void> {
    this.#stopping = new ServiceError(
      "unavailable",
      "SHUTTING_DOWN",
      "the service is shutting down",
    );
    for (const request of this.#open) request.stop(this.#stopping);
    this.#settle();
    return this.#emptied.promise;
  }

  #settle(): void {
    if (this.#stopping !== undefined && this.#open.size === 0) this.#emptied.resolve();
  }
}
