import { deferred } from "@session-ledger/base/deferred";
import type { Timers } from "@session-ledger/base/timers";

/**
 * Runs an action on request, never twice at once, and never sooner than `intervalMs` after its last
 * start. The first run is immediate; all requests that arrive meanwhile share the next run.
 */
interface Pace {
  readonly intervalMs: number;
  /** Must not reject. May resolve with an additional delay before the next run. */
  act(): Promise<number> | number;
}

export class Paced {
  readonly #timers: Timers;
  readonly #pace: Pace;
  #asked = false;
  #running: Promise<void> | undefined;
  #endRest: (() => void) | undefined;
  #stopped = false;

  constructor(timers: Timers, pace: Pace) {
    this.#timers = timers;
    this.#pace = pace;
  }

  ask(): void {
    if (this.#stopped) return;
    this.#asked = true;
    if (this.#running !== undefined) return;
    const { promise, resolve } = deferred<void>();
    this.#running = promise; // Set first, because the action may request another run.
    void this.#run().then(resolve);
  }

  /** Prevents further runs; resolves when the current run has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#endRest?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#asked && !this.#stopped) {
      this.#asked = false;
      const interval = this.#rest(this.#pace.intervalMs);
      const restMs = await this.#pace.act();
      await interval;
      if (restMs > 0) await this.#rest(restMs);
    }
    this.#running = undefined;
  }

  #rest(restMs: number): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#timers.after(restMs, resolve);
      this.#endRest = () => {
        cancel();
        resolve();
      };
    });
  }
}
