import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Timers } from "../../base/timers.ts";
import type { StreamMeter } from "./meter.ts";

export interface PaceParts {
  /** Takes one message of so many bytes; answers how long nothing may be read, in ms. */
  readonly charge: (bytes: number) => ReturnType<RateLimits["charge"]>;
  readonly timers: Timers;
  readonly meter: Pick<StreamMeter, "paused">;
}

/**
 * Slows one push stream. What has come is taken and charged; what comes next is not read before its
 * price is there, and so waits with its sender.
 */
export class Pace {
  readonly #parts: PaceParts;
  readonly #goOn: () => void;
  /** Of the frame under way; undefined between two. */
  #bytes: number | undefined;
  #cancel: (() => void) | undefined;

  /** `goOn` is called when a pause is over. */
  constructor(parts: PaceParts, goOn: () => void) {
    this.#parts = parts;
    this.#goOn = goOn;
  }

  get isPausing(): boolean {
    return this.#cancel !== undefined;
  }

  add(bytes: number): void {
    this.#bytes = (this.#bytes ?? 0) + bytes;
  }

  frameTaken(): void {
    const { charge, timers, meter } = this.#parts;
    const waitMs = charge(this.#bytes ?? 0);
    this.#bytes = undefined;
    if (waitMs === 0) return;
    meter.paused();
    this.#cancel?.();
    this.#cancel = timers.after(waitMs, () => {
      this.#cancel = undefined;
      this.#goOn();
    });
  }

  /** The stream is over; what was taken of a frame is paid for. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    if (this.#bytes !== undefined) this.#parts.charge(this.#bytes);
    this.#bytes = undefined;
  }
}
