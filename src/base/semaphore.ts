import { deferred } from "./deferred.ts";

interface SemaphoreLimits {
  readonly atOnce: number;
  /** Absent: the callers bound the number of waiting actions. */
  readonly waiting?: {
    readonly max: number;
    /** The refusal of a further action. */
    readonly full: () => Error;
  };
}

/**
 * Runs a limited number of actions at once; the others wait in order. An action that ends passes
 * its place on directly, so that no later action can overtake a waiting one.
 */
export class Semaphore {
  readonly #limits: SemaphoreLimits;
  #running = 0;
  /** Insertion order is the order of the turns. */
  readonly #waiting = new Set<() => void>();

  constructor(limits: SemaphoreLimits) {
    this.#limits = limits;
  }

  /** An abort ends the wait; an action that has begun runs to its own end. */
  async run<T>(action: () => T | Promise<T>, signal?: AbortSignal): Promise<T> {
    const { atOnce, waiting } = this.#limits;
    signal?.throwIfAborted();
    if (this.#running < atOnce) this.#running += 1;
    else if (waiting !== undefined && this.#waiting.size >= waiting.max) throw waiting.full();
    else await this.#turn(signal);
    try {
      return await action();
    } finally {
      this.#passOn();
    }
  }

  async #turn(signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve, reject } = deferred<void>();
    const leave = (): void => {
      if (this.#waiting.delete(resolve)) reject(signal?.reason);
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
    this.#running -= 1;
  }
}
