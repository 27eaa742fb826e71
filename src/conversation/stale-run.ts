/**
 * Tells a client's stream that nothing has happened for too long: the run that it follows has stalled,
 * or the session still has no run. One timer a stream, which looks at what has happened meanwhile when
 * it goes off and is set again for the rest; a row costs none.
 *
 * Silence counts only where a row would be heard: not while the database cannot be read, and not while
 * the client stands still and its stream with it. After an outage it begins anew, because the runner
 * could not push either, and is not back at the very moment that the watch is.
 */
import type { Clock } from "../base/clock.ts";
import type { Timers } from "../base/timers.ts";
import type { Standing } from "../live/watcher.ts";

const MICROS_PER_MS = 1_000n;
/** Timers of Node have 31 bits; RUN_STALE_AFTER may be longer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

interface StaleLimits {
  readonly staleAfterMs: number;
  /** For the first run of a session. */
  readonly waitMs: number;
}

export class StaleRun {
  readonly #parts: { readonly clock: Clock; readonly timers: Timers };
  readonly #limits: StaleLimits;
  readonly #controller = new AbortController();
  /** Silence is counted from here. Undefined: no run is open, and none is waited for. */
  #newestMicros: bigint | undefined;
  #isWaiting = false;
  #isListening = false;
  /** Since the watch was live, or could not read, it has not been live. */
  #wasAway = false;
  #wasLive = false;
  #cancel: (() => void) | undefined;

  constructor(parts: { readonly clock: Clock; readonly timers: Timers }, limits: StaleLimits) {
    this.#parts = parts;
    this.#limits = limits;
  }

  /** Aborted when the run has stalled, or did not begin in time. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get outcome(): "stalled" | "no_run" | undefined {
    if (!this.signal.aborted) return undefined;
    return this.#isWaiting ? "no_run" : "stalled";
  }

  /** Something happened in the open run; a clock that is ahead of ours does not make it later than now. */
  happened(atMicros: bigint): void {
    if (this.#isWaiting) this.rest(); // The timer of the wait may be the longer one.
    this.#begin(atMicros);
  }

  /** The session has no run yet. What comes before its first run does not make the wait longer. */
  waits(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#begin(this.#parts.clock.nowMicros());
  }

  /** No run is open, and none is waited for. */
  rest(): void {
    this.#isWaiting = false;
    this.#newestMicros = undefined;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** The watch has told where it stands. When it begins to be live, the log itself says how old it is. */
  stands(standing: Standing): void {
    if (standing === "live") {
      if (this.#wasAway && this.#newestMicros !== undefined)
        this.#begin(this.#parts.clock.nowMicros());
      this.#wasAway = false;
      this.#wasLive = true;
    } else if (standing === "degraded" || this.#wasLive) this.#wasAway = true;
  }

  /** Whether a row would be heard from now on. */
  listens(isListening: boolean): void {
    this.#isListening = isListening;
    if (isListening && this.#leftMs() <= 0) this.#controller.abort();
  }

  #begin(atMicros: bigint): void {
    const now = this.#parts.clock.nowMicros();
    this.#newestMicros = atMicros < now ? atMicros : now;
    if (this.#cancel === undefined) this.#look();
  }

  get #limitMs(): number {
    return this.#isWaiting ? this.#limits.waitMs : this.#limits.staleAfterMs;
  }

  #look(): void {
    this.#cancel = undefined;
    const leftMs = this.#leftMs();
    if (leftMs <= 0 && this.#isListening) {
      this.#controller.abort();
      return;
    }
    const delayMs = Math.min(leftMs > 0 ? leftMs : this.#limitMs, TIMER_MS_MAX);
    this.#cancel = this.#parts.timers.after(delayMs, () => this.#look());
  }

  #leftMs(): number {
    if (this.#newestMicros === undefined) return this.#limitMs;
    const silentMicros = this.#parts.clock.nowMicros() - this.#newestMicros;
    return this.#limitMs - Number(silentMicros / MICROS_PER_MS);
  }
}
