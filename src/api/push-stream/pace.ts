import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Timers } from "../../base/timers.ts";
import type { StreamMeter } from "./meter.ts";

export interface PaceParts {
  /**
   * Charges one message of that many bytes; answers for how many milliseconds nothing may be read.
   */
  readonly charge: (bytes: number) => ReturnType<RateLimits["charge"]>;
  readonly timers: Timers;
  readonly meter: Pick<StreamMeter, "paused">;
}

/**
 * Slows one push stream. A message that has arrived is taken and charged. The next message is not
 * read until the charge is paid, so it waits with its sender.
 */
export class Pace {
  readonly #parts: PaceParts;
  readonly #goOn: () => void;
  /** Bytes of the current frame; undefined between two frames. */
  #bytes: number | undefined;
  #cancel: (() => void) | undefined;

  /** `goOn` is called at the end of a pause. */
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

  /** The stream is over; charges the bytes that were taken of the current frame. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    if (this.#bytes !== undefined) this.#parts.charge(this.#bytes);
    this.#bytes = undefined;
  }
}
