/** Numbers from a seed, for tests that do things at random and must be able to do them again. */

/** Everybody's, so that a run of the tests judges the change and not the day. */
const SEED_DEFAULT = 20_261_122;

/** SEED of the environment; `random`: one that nobody has looked at yet. */
export function seedOfRun(): number {
  const { SEED } = process.env;
  if (SEED === undefined) return SEED_DEFAULT;
  return SEED === "random" ? newSeed() : Number(SEED);
}

export function newSeed(): number {
  return Date.now() % 2 ** 31;
}

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed % 2 ** 31) + 1; // Nothing ever follows a 0.
    for (let turn = 0; turn < 8; turn += 1) this.#turn(); // Small seeds begin alike.
  }

  /** A whole number from 0 to one less than `end`. */
  below(end: number): number {
    return Math.floor((this.#turn() / 2 ** 32) * end);
  }

  /** Once in so many times. */
  oneIn(times: number): boolean {
    return this.below(times) === 0;
  }

  pick<T>(from: readonly T[]): T {
    const picked = from[this.below(from.length)];
    if (picked === undefined) throw new Error("there is nothing to pick from");
    return picked;
  }

  shuffled<T>(items: readonly T[]): readonly T[] {
    const left = [...items];
    return items.flatMap(() => left.splice(this.below(left.length), 1));
  }

  /** Another one, so that what one user draws does not depend on what others have drawn. */
  fork(): Random {
    return new Random(this.#turn());
  }

  /** A xorshift of 32 bits. */
  #turn(): number {
    let bits = this.#state;
    bits ^= bits << 13;
    bits ^= bits >>> 17;
    bits ^= bits << 5;
    this.#state = bits >>> 0;
    return this.#state;
  }
}
