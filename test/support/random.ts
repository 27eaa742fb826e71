/** Random numbers from a seed, so that a test can be repeated. */

/** The shared seed, so that a failing run is caused by the change and not by luck. */
const SEED_DEFAULT = 20_261_122;

/** SEED of the environment; `random`: a new one. */
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

  /** True once in `times` calls. */
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

  /** An independent generator, so that one user's draws do not depend on those of others. */
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

/**
 * The settings of properties. `.ci/run` draws all runs (PROPERTY_SHARE=1); without it a quarter of them,
 * the same ones each time. SEED repeats a printed failure, PROPERTY_RUNS sets another number of runs.
 */
const SHARE = Number(process.env["PROPERTY_SHARE"] ?? "0.25");

export function properties({ runs }: { readonly runs: number }): {
  readonly numRuns: number;
  readonly seed: number;
} {
  const { PROPERTY_RUNS: given } = process.env;
  return { numRuns: Number(given ?? Math.ceil(runs * SHARE)), seed: seedOfRun() };
}
