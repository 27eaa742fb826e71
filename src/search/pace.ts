/**
 * How long the index of search pauses after a part of its work: as long as the part, and on a busy process
 * up to BUSY_PAUSES times as long. The further it is behind, the shorter, down to the one pause at
 * LAG_MAX_MS: the index comes late under load, but not without a bound. While pushes wait for longer than
 * SLOW_PUSH_MS, the process has more than it can do, and the index waits for them however late it is.
 */
import type { Clock } from "../base/clock.ts";

const BUSY_PAUSES = 40;
const LAG_MAX_MS = 20_000;
const SLOW_PUSH_MS = 200;
/** An older wait of a push says nothing of the load now. */
const RECENT_MS = 1_000;

export class Pace {
  readonly #clock: Pick<Clock, "monotonicMs">;
  #pushMs = 0;
  #atMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  /** A batch was committed, and its oldest push waited for this time. */
  committed(pushMs: number): void {
    this.#pushMs = pushMs;
    this.#atMs = this.#clock.monotonicMs();
  }

  /** The pause after the first one, in multiples of the work; `utilization` of the process, 0 to 1. */
  pauses({ utilization, lagMs }: { readonly utilization: number; readonly lagMs: number }): number {
    const isSlow =
      this.#pushMs > SLOW_PUSH_MS && this.#clock.monotonicMs() - this.#atMs < RECENT_MS;
    const patience = isSlow ? 1 : Math.min(1, Math.max(0, 1 - lagMs / LAG_MAX_MS));
    return BUSY_PAUSES * utilization ** 2 * patience;
  }
}
