/** Records in the order of arrival, numbered without a gap from the first one ever. */
export class SpoolQueue<T> {
  #records: (T | undefined)[] = [];
  /** The count of entries at the front of `#records` that have left. */
  #left = 0;
  /** The number of the record at the front, or of the next one. */
  #frontNumber = 1n;

  get length(): number {
    return this.#records.length - this.#left;
  }

  /** The lowest number that has not left. */
  get frontNumber(): bigint {
    return this.#frontNumber;
  }

  /** The highest number so far, also when it has left. */
  get lastNumber(): bigint {
    return this.#frontNumber + BigInt(this.length) - 1n;
  }

  push(record: T): void {
    this.#records.push(record);
  }

  *[Symbol.iterator](): Generator<T, void, undefined> {
    for (let at = this.#left; at < this.#records.length; at += 1) {
      const record = this.#records[at];
      if (record !== undefined) yield record;
    }
  }

  at(number: bigint): T | undefined {
    if (number < this.#frontNumber) return undefined;
    // The distance from the front fits an array index; the number of the session may not.
    return this.#records[this.#left + Number(number - this.#frontNumber)];
  }

  /** Removes everything up to a number from the front. */
  takeUpTo(number: bigint): readonly T[] {
    if (number < this.#frontNumber) return [];
    const count = Math.min(Number(number - this.#frontNumber) + 1, this.length);
    const end = this.#left + count;
    const taken = this.#records.slice(this.#left, end).filter((record) => record !== undefined);
    this.#records.fill(undefined, this.#left, end); // Otherwise the array would keep their memory.
    this.#left = end;
    this.#frontNumber += BigInt(count);
    if (this.#left * 2 > this.#records.length) {
      this.#records = this.#records.slice(this.#left);
      this.#left = 0;
    }
    return taken;
  }

  /** Removes everything before a number, which may be above the last one: it is then the next. */
  skipTo(number: bigint): void {
    this.takeUpTo(number - 1n);
    if (number > this.#frontNumber) this.#frontNumber = number;
  }
}
