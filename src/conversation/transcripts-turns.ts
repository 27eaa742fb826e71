import { ServiceError } from "../base/errors.ts";

export interface TurnsLimits {
  readonly atOnce: number;
  /** Further callers are refused. */
  readonly waitingMax: number;
}

const RETRY_AFTER_MS = 1_000;

/** Runs a limited number of actions at once; the others wait in order, until they abort. */
export class Turns {
  readonly #waitingMax: number;
  #free: number;
  /** Insertion order is the order of the turns. */
  readonly #waiting = new Set<() => void>();

  constructor({ atOnce, waitingMax }: TurnsLimits) {
    this.#free = atOnce;
    this.#waitingMax = waitingMax;
  }

  /** An abort ends the wait; an action that has begun runs to its own end. */
  async take<T>(act: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(signal);
    try {
      return await act();
    } finally {
      this.#passOn();
    }
  }

  async #wait(signal: AbortSignal | undefined): Promise<void> {
    if (this.#waiting.size >= this.#waitingMax) throw tooManyWaiting(this.#waitingMax);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (): void => {
      this.#waiting.delete(resolve);
      reject(signal?.reason);
    };
    this.#waiting.add(resolve);
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  #passOn(): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      return next();
    }
    this.#free += 1;
  }
}

function tooManyWaiting(max: number): ServiceError {
  const message = `${max} transcripts wait to be read, and no more may`;
  return new ServiceError("overloaded", "RATE_LIMITED", message, { retryAfterMs: RETRY_AFTER_MS });
}
