/** So many at once; the others in the order in which they came. */
export class Turns {
  #free: number;
  /** Insertion order is the order of the turns. */
  readonly #waiting = new Set<() => void>();

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  async take<T>(act: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.add(resolve));
    try {
      return await act();
    } finally {
      this.#passOn();
    }
  }

  #passOn(): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      return next();
    }
    this.#free += 1;
  }
}
