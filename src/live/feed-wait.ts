/** How a feed waits: for a look of the horizon, its end, an abort, or the end of a pause. */
import { backoffMs } from "@session-ledger/base/backoff";
import { ServiceError } from "@session-ledger/base/errors";
import type { Timers } from "@session-ledger/base/timers";
import type { Log } from "../observability/log.ts";
import { defectOf } from "../store/failure.ts";
import type { Horizon } from "./horizon.ts";
import { READ_RETRY } from "./limits.ts";

export interface FeedWaitParts {
  readonly horizon: Horizon;
  readonly log: Log;
  readonly timers: Timers;
}

export class FeedWait {
  readonly #parts: FeedWaitParts;
  readonly #signal: AbortSignal;
  readonly #leaveHorizon: () => void;
  #isWoken = false;
  #wake: (() => void) | undefined;
  #failures = 0;
  #endReason: ServiceError | undefined;

  constructor(parts: FeedWaitParts, signal: AbortSignal) {
    this.#parts = parts;
    this.#signal = signal;
    signal.addEventListener("abort", this.#onWake, { once: true });
    this.#leaveHorizon = parts.horizon.join(this.#onWake);
  }

  end(reason: ServiceError): void {
    this.#endReason = reason;
    this.#onWake();
  }

  leave(): void {
    this.#signal.removeEventListener("abort", this.#onWake);
    this.#leaveHorizon();
  }

  get #reason(): ServiceError | undefined {
    return this.#endReason ?? this.#parts.horizon.defect;
  }

  get isOver(): boolean {
    return this.#reason !== undefined || this.#signal.aborted;
  }

  get hasFailed(): boolean {
    return this.#failures > 0 || this.#parts.horizon.isFailing;
  }

  /** At the end of the feed. */
  throwReason(): void {
    if (this.#reason !== undefined) throw this.#reason;
    // The reason of the abort may be an error for the caller; a caller that left gets no error.
    if (this.#signal.reason instanceof ServiceError) throw this.#signal.reason;
  }

  /** Resolves at the next wake-up, or at once if one came since the last wait. */
  async next(): Promise<void> {
    if (!this.#isWoken) await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#isWoken = false;
  }

  /** Undefined after a failure, which is tried again after a pause. */
  async read<T>(read: () => Promise<T>, of: object): Promise<T | undefined> {
    try {
      const answer = await read();
      this.#failures = 0;
      return answer;
    } catch (error) {
      if (this.isOver) return undefined;
      if (this.#failures === 0) this.#parts.log.warn({ ...of, err: error }, "feed read failed");
      const defect = defectOf(error);
      if (defect !== undefined) {
        this.end(defect);
        return undefined;
      }
      const delayMs = backoffMs(READ_RETRY, this.#failures, Math.random());
      this.#failures += 1;
      await this.#pause(delayMs);
      return undefined;
    }
  }

  async #pause(delayMs: number): Promise<void> {
    const pause = { isOver: false };
    const cancel = this.#parts.timers.after(delayMs, () => {
      pause.isOver = true;
      this.#onWake();
    });
    // Looks of the horizon wake it too.
    while (!pause.isOver && !this.isOver) await this.next();
    cancel();
  }

  /** A field, because it is passed as a listener. */
  readonly #onWake = (): void => {
    this.#isWoken = true;
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  };
}
