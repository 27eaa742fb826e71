/**
 * How long the index of search pauses after a part of its work: as long as the part, and on a process
 * without an idle moment BUSY_PAUSES times as long. An index that is behind first takes more of the time
 * that the process does not use, up to half of it, and from LAG_MAX_MS on as much of a process without idle
 * time. While pushes wait for longer than SLOW_PUSH_MS, the process has too much to do, and the
 * index waits for them.
 *
 *   pauses after the work, at a utilization of   0.5    0.8    0.9     1
 *   not behind                                    10     26     32    40
 *   10 s                                           0      1      7    40
 *   15 s                                           0      1      4    20
 *   20 s                                           0      0      0     0
 */
import type { Clock } from "@session-ledger/base/clock";

const BUSY_PAUSES = 40;
/** From that lag to LAG_MAX_MS a busy process gives more and more to the index. */
const LAG_MS = 10_000;
const LAG_MAX_MS = 20_000;
const LAG_REST_MS = LAG_MAX_MS - LAG_MS;
/** The powers of the utilization that the pauses follow, not behind and at LAG_MS. */
const POWER = 2;
const POWER_LATE = 16;
const SLOW_PUSH_MS = 200;
/** An older wait of a push does not show the present load. */
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
    const [idle, busy] = this.#isSlow ? [0, 0] : [lagMs / LAG_MS, (lagMs - LAG_MS) / LAG_REST_MS];
    const power = POWER + (POWER_LATE - POWER) * within1(idle);
    return BUSY_PAUSES * utilization ** power * (1 - within1(busy));
  }

  get #isSlow(): boolean {
    const sinceMs = this.#clock.monotonicMs() - this.#atMs;
    return this.#pushMs > SLOW_PUSH_MS && sinceMs < RECENT_MS;
  }
}

function within1(share: number): number {
  return Math.min(1, Math.max(0, share));
}
