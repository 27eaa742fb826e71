/**
 * Tells a client's stream that nothing has happened for too long: the followed run has stalled, or
 * the session still has no run. There is one timer per stream. When it fires, it checks the newest
 * event and is set again for the remaining time, so a row costs no timer.
 *
 * Silence counts only while a row would be heard: not while the database cannot be read, and not
 * while the client stands still and its stream with it. After an outage the silence starts again at
 * zero, because the runner could not push either, and may return later than the watch.
 */
import type { Clock } from "../base/clock.ts";
import type { Timers } from "../base/timers.ts";
import type { Standing } from "../live/watcher.ts";

const MICROS_PER_MS = 1_000n;
/** Timers of Node have 31 bits; RUN_STALE_AFTER may be longer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

interface StaleLimits {
  readonly staleAfterMs: number;
  /** The longest wait for the first run of a session. */
  readonly waitMs: number;
}

export class StaleRun {
  readonly #parts: { readonly clock: Clock; readonly timers: Timers };
  readonly #limits: StaleLimits;
  readonly #controller = new AbortController();
  /** The start of the silence. Undefined: no run is open, and none is waited for. */
  #newestMicros: bigint | undefined;
  #isWaiting = false;
  #isListening = false;
  /** True after the watch was degraded, or stopped being live, until it is live again. */
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

  /** An event happened in the open run. A time from a clock ahead of ours counts as now. */
  happened(atMicros: bigint): void {
    if (this.#isWaiting) this.rest(); // The timer of the wait may be the longer one.
    this.#begin(atMicros);
  }

  /** The session has no run yet. Events before its first run do not make the wait longer. */
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

  /**
   * The watch has reported its standing. When it becomes live, the log's own times tell its age.
   */
  stands(standing: Standing): void {
    if (standing === "live") {
      if (this.#wasAway && this.#newestMicros !== undefined)
        this.#begin(this.#parts.clock.nowMicros());
      this.#wasAway = false;
      this.#wasLive = true;
    } else if (standing === "degraded" || this.#wasLive) this.#wasAway = true;
  }

  /** Tells whether a row would be heard from now on. */
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
