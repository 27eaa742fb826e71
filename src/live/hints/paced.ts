/**
 * Something that is done when asked, but never twice at once, and not before `intervalMs` after it
 * last began. The first time is at once; all who ask meanwhile share the next.
 */
import type { Timers } from "../../base/timers.ts";

export interface Pace {
  readonly intervalMs: number;
  /** Must not reject. May resolve with how long to rest before the next time, on top. */
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
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#running = promise; // First, because what is done may ask again.
    void this.#run().then(resolve);
  }

  /** Nothing begins any more; resolves when what runs has ended. */
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
