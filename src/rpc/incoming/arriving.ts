/** Ticks a request may take to be whole … */
const ARRIVAL_TICKS_MAX = 60;
/** … and when there is no room for others. */
const PRESSED_TICKS_MAX = 5;

/** A second: the limits are long, and a clock a chunk would be asked more often than all that. */
export const TICK_MS = 1_000;

/** A request that is not whole. */
export interface Arrival {
  late(): void;
}

/** The requests that are not whole, in the order they began. */
export class Arriving {
  readonly #began = new Map<Arrival, number>();
  #tick = 0;

  begin(arrival: Arrival): void {
    if (!this.#began.has(arrival)) this.#began.set(arrival, this.#tick);
  }

  end(arrival: Arrival): void {
    this.#began.delete(arrival);
  }

  /** Tells those that are late; `isPressed`: they take memory that others need. */
  tick({ isPressed }: { readonly isPressed: boolean }): void {
    this.#tick += 1;
    const ticksMax = isPressed ? PRESSED_TICKS_MAX : ARRIVAL_TICKS_MAX;
    for (const [arrival, began] of this.#began) {
      if (this.#tick - began <= ticksMax) return;
      this.#began.delete(arrival);
      arrival.late();
    }
  }
}
