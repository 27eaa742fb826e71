/**
 * Records in the order in which they came, numbered without a gap from the first that was ever in it.
 * They leave at the front, and any of them is found by its number.
 */
export class SpoolQueue<T> {
  #records: (T | undefined)[] = [];
  /** Of `#records`, so many at the front have left. */
  #left = 0;
  /** Of the record that is at the front, or would be. */
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
    // Not a number of the session, but how far it is from the front: that fits what an array holds.
    return this.#records[this.#left + Number(number - this.#frontNumber)];
  }

  /** Takes everything up to a number off the front. */
  takeUpTo(number: bigint): readonly T[] {
    if (number < this.#frontNumber) return [];
    const count = Math.min(Number(number - this.#frontNumber) + 1, this.length);
    const end = this.#left + count;
    const taken = this.#records.slice(this.#left, end).filter((record) => record !== undefined);
    this.#records.fill(undefined, this.#left, end); // Or their memory would stay with the array.
    this.#left = end;
    this.#frontNumber += BigInt(count);
    if (this.#left * 2 > this.#records.length) {
      this.#records = this.#records.slice(this.#left);
      this.#left = 0;
    }
    return taken;
  }
}
