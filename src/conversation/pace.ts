/** Reproduces the recorded timing of a log, at a chosen speed. */
import type { Clock } from "../base/clock.ts";
import type { Timers } from "../base/timers.ts";

export interface PaceParts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly signal: AbortSignal;
}

/** The longest single wait: a log may have been quiet over a night. */
const WAIT_MS_MAX = 10_000;
/**
 * Timers have a resolution of a millisecond, so an event that is due within one is sent at once.
 */
const WAIT_MS_MIN = 1;
const MICROS_PER_MS = 1_000;

export class Pace {
  readonly #parts: PaceParts;
  readonly #speed: number;
  /** The time of the latest event so far; times of a log may step back. */
  #latestMicros: bigint | undefined;
  /** The due time of the next event: a sum, so that late timers do not add up. */
  #dueMs = 0;

  /** `speed` 2 means twice as fast. */
  constructor(parts: PaceParts, { speed }: { readonly speed: number }) {
    this.#parts = parts;
    this.#speed = speed;
  }

  /** Resolves when the event of that time is due, or when the signal aborts. */
  async until(createdAtMicros: bigint): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs();
    const latest = this.#latestMicros;
    if (latest === undefined) this.#dueMs = nowMs;
    else if (createdAtMicros > latest) {
      const recordedMs = Number(createdAtMicros - latest) / MICROS_PER_MS;
      this.#dueMs += Math.min(recordedMs / this.#speed, WAIT_MS_MAX);
    }
    if (latest === undefined || createdAtMicros > latest) this.#latestMicros = createdAtMicros;
    const waitMs = this.#dueMs - nowMs;
    if (waitMs >= WAIT_MS_MIN && !this.#parts.signal.aborted) await this.#wait(waitMs);
  }

  async #wait(waitMs: number): Promise<void> {
    const { timers, signal } = this.#parts;
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = timers.after(waitMs, resolve);
    const leave = (): void => resolve();
    signal.addEventListener("abort", leave, { once: true });
    await promise;
    signal.removeEventListener("abort", leave);
    cancel();
  }
}
