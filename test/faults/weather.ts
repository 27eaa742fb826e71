/**
 * The present faults, and the time since the last one: progress is only required in calm weather. It
 * also keeps the timeline of the run, against which a violation is read.
 */
import { setTimeout as delay } from "node:timers/promises";

export interface TimelineEntry {
  /** Time since the begin of the run. */
  readonly atMs: number;
  readonly what: string;
}

/** The interval of checks by a waiting caller. */
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

  /** The present faults, in words; empty in calm weather. */
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

  /** Waits until the condition holds; false when it does not after that long without a fault. */
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
