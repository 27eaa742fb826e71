import { deferred } from "@session-ledger/base/deferred";

interface SemaphoreLimits {
  readonly atOnce: number;
  /** Of one caller; absent: any number. */
  readonly atOnceOfCaller?: number;
  /** Absent: the callers bound the number of waiting actions. */
  readonly waiting?: {
    readonly max: number;
    /** Of one caller; absent: `max`. */
    readonly ofCallerMax?: number;
    /** The refusal of a further action. */
    readonly full: () => Error;
  };
}

/**
 * Runs a limited number of actions at once. Those of one caller wait in order, and callers take
 * turns. An action that ends passes its slot on, so no later action overtakes a waiting one.
 */
export class Semaphore {
  readonly #limits: SemaphoreLimits;
  #running = 0;
  #waiting = 0;
  /** The next caller comes first. A caller without actions has no entry. */
  readonly #callers = new Map<string, QueuedCaller>();

  constructor(limits: SemaphoreLimits) {
    this.#limits = limits;
  }

  /**
   * An abort ends the wait; an action that has begun runs to its own end. Actions without the name of
   * a caller are those of one caller.
   */
  async run<T>(action: () => T | Promise<T>, signal?: AbortSignal, name = ""): Promise<T> {
    signal?.throwIfAborted();
    const caller = this.#callers.get(name) ?? { running: 0, waiting: new Set() };
    if (this.#hasRoom(caller)) {
      this.#callers.set(name, caller);
      this.#running += 1;
      caller.running += 1;
    } else await this.#turn(name, caller, signal);
    try {
      return await action();
    } finally {
      this.#running -= 1;
      caller.running -= 1;
      this.#forget(name, caller);
      this.#passOn();
    }
  }

  #hasRoom({ running }: QueuedCaller): boolean {
    const { atOnce, atOnceOfCaller = atOnce } = this.#limits;
    return this.#running < atOnce && running < atOnceOfCaller;
  }

  async #turn(name: string, caller: QueuedCaller, signal: AbortSignal | undefined): Promise<void> {
    const { waiting } = this.#limits;
    if (waiting !== undefined) {
      const { max, ofCallerMax = max, full } = waiting;
      if (this.#waiting >= max || caller.waiting.size >= ofCallerMax) throw full();
    }
    const { promise, resolve, reject } = deferred<void>();
    const leave = (): void => {
      if (!caller.waiting.delete(resolve)) return;
      this.#waiting -= 1;
      this.#forget(name, caller);
      reject(signal?.reason);
    };
    this.#callers.set(name, caller);
    caller.waiting.add(resolve);
    this.#waiting += 1;
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  #forget(name: string, { running, waiting }: QueuedCaller): void {
    if (running === 0 && waiting.size === 0) this.#callers.delete(name);
  }

  #passOn(): void {
    for (const [name, caller] of this.#callers) {
      const [next] = caller.waiting;
      if (next === undefined || !this.#hasRoom(caller)) continue;
      caller.waiting.delete(next);
      this.#waiting -= 1;
      this.#running += 1;
      caller.running += 1;
      this.#callers.delete(name);
      this.#callers.set(name, caller);
      return next();
    }
  }
}

interface QueuedCaller {
  running: number;
  /** In the order of their turns. */
  readonly waiting: Set<() => void>;
}
