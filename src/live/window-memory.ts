/**
 * What all windows hold together, bounded. Above the bound the windows that were appended to the
 * longest ago are emptied, whole: their watchers have most likely taken all of it, and one that has
 * not reads the table.
 */
interface Holder {
  readonly heldBytes: number;
  /** Lets go of every row; calls `changed`. */
  empty(): void;
}

export class WindowMemory {
  readonly #bytesMax: number;
  /** Those that hold rows, the one appended to the longest ago first. */
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
