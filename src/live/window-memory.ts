/**
 * Bounds the memory of all windows together. Above the bound, the windows with the oldest appends
 * are emptied completely: their watchers most likely have all rows already, and a watcher that has
 * not reads the table.
 */
interface Holder {
  readonly heldBytes: number;
  /** Drops every row; calls `changed`. */
  empty(): void;
}

export class WindowMemory {
  readonly #bytesMax: number;
  /** The windows that hold rows; the one with the oldest append comes first. */
  readonly #holders = new Set<Holder>();
  #bytes = 0;

  constructor(limits: { readonly windowsBytesMax: number }) {
    this.#bytesMax = limits.windowsBytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  changed(holder: Holder, byBytes: number): void {
    this.#bytes += byBytes;
    this.#holders.delete(holder);
    if (holder.heldBytes > 0) this.#holders.add(holder);
    for (const oldest of this.#holders) {
      if (this.#bytes <= this.#bytesMax) break;
      oldest.empty();
    }
  }
}
