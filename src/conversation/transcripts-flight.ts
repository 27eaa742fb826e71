import { ServiceError } from "../base/errors.ts";

/**
 * One piece of work for all callers that wait for it. When the last caller has left, the work is
 * aborted.
 */
export class Flight {
  readonly #controller = new AbortController();
  readonly #landed: Promise<void>;
  #waiting = 0;

  /** `fly` ends soon after its signal aborts. */
  constructor(fly: (signal: AbortSignal) => Promise<void>) {
    this.#landed = fly(this.#controller.signal);
    this.#landed.catch(() => undefined); // The waiting callers get the error, if any are left.
  }

  /**
   * Rejects as the flight does, or when the signal aborts. A flight that is ending already is only
   * awaited.
   */
  async landed(signal: AbortSignal | undefined): Promise<void> {
    if (this.#controller.signal.aborted) {
      await this.#landed.catch(() => undefined);
      return;
    }
    signal?.throwIfAborted();
    this.#waiting += 1;
    const { promise: left, reject } = Promise.withResolvers<never>();
    const leave = (): void => reject(signal?.reason);
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await Promise.race([this.#landed, left]);
    } finally {
      signal?.removeEventListener("abort", leave);
      this.#waiting -= 1;
      if (this.#waiting === 0) this.#controller.abort(abandoned());
    }
  }
}

function abandoned(): ServiceError {
  return new ServiceError("cancelled", "CANCELLED", "everybody left who waited for the transcript");
}
