import type { Timers } from "@session-ledger/base/timers";

/**
 * Runs an action on request, never twice at once, and never sooner than `intervalMs` after its last
 * start. The first run is immediate; all requests that arrive meanwhile share the next run.
 */
interface ThrottleOptions {
  readonly intervalMs: number;
  /** Must not reject. May resolve with an additional delay before the next run. */
  act(): Promise<number> | number;
}

export class Throttle {
  readonly #timers: Timers;
  readonly #options: ThrottleOptions;
  #isRequested = false;
  #isRunning = false;
  #running: Promise<void> | undefined;
  #endPause: (() => void) | undefined;
  #stopped = false;

  constructor(timers: Timers, pace: ThrottleOptions) {
    this.#timers = timers;
    this.#options = pace;
  }

  request(): void {
    if (this.#stopped) return;
    this.#isRequested = true;
    if (this.#isRunning) return;
    this.#isRunning = true; // Set first, because the action may request another run.
    this.#running = this.#run();
  }

  /** Prevents further runs; resolves when the current run has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#endPause?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#isRequested && !this.#stopped) {
      this.#isRequested = false;
      const interval = this.#pause(this.#options.intervalMs);
      const restMs = await this.#options.act();
      await interval;
      if (restMs > 0) await this.#pause(restMs);
    }
    this.#isRunning = false;
  }

  #pause(restMs: number): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#timers.after(restMs, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
