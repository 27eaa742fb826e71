/**
 * Tells a client's stream that the run it follows has stalled: has no end, and nothing has happened in
 * it for so long. One timer a stream, which looks at what has happened meanwhile when it goes off and
 * is set anew for the rest; a row costs none.
 *
 * Silence counts only where a row would be heard: not while the database cannot be read, and not while
 * the client stands still and its stream with it. After an outage it begins anew, because the runner
 * could not push either, and is not back at the very moment that the watch is.
 */
import type { Clock } from "../base/clock.ts";
import type { Timers } from "../live/timers.ts";
import type { Standing } from "../live/watcher.ts";

const MICROS_PER_MS = 1_000n;
/** Timers of Node have 31 bits; RUN_STALE_AFTER may be longer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export class StaleRun {
  readonly #parts: { readonly clock: Clock; readonly timers: Timers };
  readonly #staleAfterMs: number;
  readonly #controller = new AbortController();
  /** Undefined: no run is open. */
  #newestMicros: bigint | undefined;
  #isListening = false;
  /** Since the watch was live, or could not read, it has not been live. */
  #wasAway = false;
  #wasLive = false;
  #cancel: (() => void) | undefined;

  constructor(
    parts: { readonly clock: Clock; readonly timers: Timers },
    options: { readonly staleAfterMs: number },
  ) {
    this.#parts = parts;
    this.#staleAfterMs = options.staleAfterMs;
  }

  /** Aborted when the run has stalled. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get hasStalled(): boolean {
    return this.signal.aborted;
  }

  /** Something happened in the open run; a clock that is ahead of ours does not make it later than now. */
  happened(atMicros: bigint): void {
    const now = this.#parts.clock.nowMicros();
    this.#newestMicros = atMicros < now ? atMicros : now;
    if (this.#cancel === undefined) this.#look();
  }

  /** No run is open. */
  rest(): void {
    this.#newestMicros = undefined;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** The watch has told where it stands. When it begins to be live, the log itself says how old it is. */
  stands(standing: Standing): void {
    if (standing === "live") {
      if (this.#wasAway && this.#newestMicros !== undefined)
        this.happened(this.#parts.clock.nowMicros());
      this.#wasAway = false;
      this.#wasLive = true;
    } else if (standing === "degraded" || this.#wasLive) this.#wasAway = true;
  }

  /** Whether a row would be heard from now on. */
  listens(isListening: boolean): void {
    this.#isListening = isListening;
    if (isListening && this.#leftMs() <= 0) this.#controller.abort();
  }

  #look(): void {
    this.#cancel = undefined;
    const leftMs = this.#leftMs();
    if (leftMs <= 0 && this.#isListening) {
      this.#controller.abort();
      return;
    }
    const delayMs = Math.min(leftMs > 0 ? leftMs : this.#staleAfterMs, TIMER_MS_MAX);
    this.#cancel = this.#parts.timers.after(delayMs, () => this.#look());
  }

  #leftMs(): number {
    if (this.#newestMicros === undefined) return this.#staleAfterMs;
    const silentMicros = this.#parts.clock.nowMicros() - this.#newestMicros;
    return this.#staleAfterMs - Number(silentMicros / MICROS_PER_MS);
  }
}
