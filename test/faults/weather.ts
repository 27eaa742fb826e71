/**
 * What is broken at a moment, and since when nothing is: whoever waits for something to get through
 * waits in calm weather only. It also keeps the run's timeline, which a violation is read against.
 */
import { setTimeout as delay } from "node:timers/promises";

export interface TimelineEntry {
  /** Since the run began. */
  readonly atMs: number;
  readonly what: string;
}

/** How often somebody who waits looks again. */
const LOOK_EVERY_MS = 50;

export class Weather {
  readonly timeline: TimelineEntry[] = [];
  readonly #beganMs = performance.now();
  readonly #tell: (entry: TimelineEntry) => void;
  readonly #striking = new Set<string>();
  #calmSinceMs = performance.now();

  constructor(tell: (entry: TimelineEntry) => void) {
    this.#tell = tell;
  }

  get isCalm(): boolean {
    return this.#striking.size === 0;
  }

  /** What strikes now, in words; empty in calm weather. */
  get striking(): string {
    return [...this.#striking].join(" + ");
  }

  note(what: string): void {
    const entry = { atMs: Math.round(performance.now() - this.#beganMs), what };
    this.timeline.push(entry);
    this.#tell(entry);
  }

  strikes(fault: string): void {
    this.#striking.add(fault);
    this.note(`strikes: ${fault}`);
  }

  healed(fault: string): void {
    this.#striking.delete(fault);
    this.#calmSinceMs = performance.now();
    this.note(`healed: ${fault}`);
  }

  /** Waits until it is so; false when it is not after so long a time without a fault. */
  async untilInCalm(isSo: () => boolean, limitMs: number): Promise<boolean> {
    const sinceMs = performance.now();
    for (;;) {
      if (isSo()) return true;
      const waitedMs = performance.now() - Math.max(sinceMs, this.#calmSinceMs);
      if (this.isCalm && waitedMs > limitMs) return false;
      await delay(LOOK_EVERY_MS);
    }
  }
}
