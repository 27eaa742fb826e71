/** Bytes that many requests hold together, so that all of them have one bound. */
export interface ByteBudgetLimits {
  readonly bytesMax: number;
  /** What each holds without being counted: a small request is never refused for others' large ones. */
  readonly freeBytesMax: number;
}

export class ByteBudget {
  readonly #limits: ByteBudgetLimits;
  #bytes = 0;

  constructor(limits: ByteBudgetLimits) {
    this.#limits = limits;
  }

  /** Counted of all shares. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Of nothing yet; whoever has it calls its `release`. */
  share(): ByteShare {
    let counted = 0;
    const become = (next: number): boolean => {
      if (next > counted && this.#bytes + next - counted > this.#limits.bytesMax) return false;
      this.#bytes += next - counted;
      counted = next;
      return true;
    };
    return {
      hold: (bytes) => become(Math.max(0, bytes - this.#limits.freeBytesMax)),
      release: () => void become(0),
    };
  }
}

export interface ByteShare {
  /** From now on so many; false, and as it was, when there is no room for that. */
  hold(bytes: number): boolean;
  release(): void;
}
