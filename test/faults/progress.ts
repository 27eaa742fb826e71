/** The progress of every writer: when its last push succeeded, and how long each session had none. */
import type { Weather } from "./weather.ts";

export interface Gap {
  readonly sessionId: string;
  readonly ms: number;
  /** The fault at the end of the gap, or the one that had just healed. */
  readonly during: string;
}

interface Writer {
  readonly sessionIds: readonly string[];
  /** The begin of the newest push that succeeded. */
  newestMs: number;
}

export class Progress {
  readonly #weather: Weather;
  readonly #writers = new Map<string, Writer>();
  readonly #sessions = new Map<string, number>();
  #longest: Gap | undefined;
  #lastStriking = "";
  #newestMs = performance.now();
  /** Nobody waits for the rest of what writers have. */
  hasEnded = false;

  constructor(weather: Weather) {
    this.#weather = weather;
  }

  /** When the newest push of any writer succeeded. */
  get newestMs(): number {
    return this.#newestMs;
  }

  get longest(): Gap | undefined {
    return this.#longest;
  }

  joins(writer: string, sessionIds: readonly string[]): void {
    this.#writers.set(writer, { sessionIds, newestMs: performance.now() });
  }

  leaves(writer: string): void {
    this.#writers.delete(writer);
  }

  /** Records a success of a push that began then. */
  came(writer: string, beganMs = performance.now()): void {
    this.#newestMs = performance.now();
    const of = this.#writers.get(writer);
    if (of !== undefined) of.newestMs = Math.max(of.newestMs, beganMs);
  }

  /** The same for a writer that waits only for its answers: silence of its session is a gap. */
  acknowledged(writer: string, sessionId: string, beganMs = performance.now()): void {
    this.came(writer, beganMs);
    const nowMs = performance.now();
    const ms = nowMs - (this.#sessions.get(sessionId) ?? nowMs);
    this.#sessions.set(sessionId, nowMs);
    const { striking } = this.#weather;
    const during = striking === "" ? `after ${this.#lastStriking}` : striking;
    if (ms > (this.#longest?.ms ?? 0)) this.#longest = { sessionId, ms: Math.round(ms), during };
  }

  struck(what: string): void {
    this.#lastStriking = what;
  }

  /** Writers of which no later push has succeeded. */
  waitingSince(ms: number): readonly string[] {
    return [...this.#writers]
      .filter(([, { newestMs }]) => newestMs < ms)
      .map(([name, { sessionIds }]) => `${name} (${sessionIds.join(", ")})`);
  }
}
