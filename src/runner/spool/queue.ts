/**
 * Records in the order of their arrival, numbered without a gap from the first one ever. Records
 * leave at the front, and each one is found by its number.
 */
export class SpoolQueue<T> {
  #records: (T | undefined)[] = [];
  /** The count of entries at the front of `#records` that have left. */
  #left = 0;
  /** The number of the record at the front, or of the next one. */
  #frontNumber: bigint;

  constructor(firstNumber = 1n) {
    this.#frontNumber = firstNumber;
  }

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

  /** Returns its number. */
  push(record: T): bigint {
    this.#records.push(record);
    return this.lastNumber;
  }

  at(number: bigint): T | undefined {
    if (number < this.#frontNumber) return undefined;
    // The distance from the front, and not the number of the session: the distance fits an array
    // index.
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
}
