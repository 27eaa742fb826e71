/** Runs a limited number of jobs at once; further jobs wait in order, up to a limit. */
import { queueFull } from "./refusal.ts";

export interface LaneLimits {
  readonly lanes: number;
  readonly waitingMax: number;
}

export class Lanes {
  readonly #limits: LaneLimits;
  readonly #waiting: (() => void)[] = [];
  #busy = 0;

  constructor(limits: LaneLimits) {
    this.#limits = limits;
  }

  /** Runs the work when a lane is free; rejects with QUEUE_FULL when too many jobs wait already. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const { lanes, waitingMax } = this.#limits;
    if (this.#busy < lanes) this.#busy += 1;
    else {
      if (this.#waiting.length >= waitingMax) throw queueFull();
      // The job that ends passes its lane on to this one.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#busy -= 1;
      else next();
    }
  }
}
