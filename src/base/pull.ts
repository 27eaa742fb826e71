/**
 * Takes values from a source and holds none of them while it waits for the next one. A `for await`
 * loop, a `yield*` and a variable of a generator do hold the last value: V8 keeps the registers of a
 * suspended function, also those of variables that are out of scope. 80 streams without news held
 * 340 MB of rows that their clients had received (rows of 4 MB, Node 24.21, heap snapshot). Here
 * each step is a call that ends before the next wait, and a taken value is forgotten
 * (test/unit/pull.test.ts).
 *
 *   while (pull.hasNext() || (await pull.read())) yield pull.take();
 */
export class Pull<T, U> {
  readonly #source: AsyncIterator<T>;
  readonly #make: (value: T) => Iterable<U>;
  /** The values made of the last value of the source. */
  #made: Iterator<U> | undefined;
  #next: { readonly value: U } | undefined;

  constructor(source: AsyncIterable<T>, make: (value: T) => Iterable<U>) {
    this.#source = source[Symbol.asyncIterator]();
    this.#make = make;
  }

  /** True when a value is ready. */
  hasNext(): boolean {
    if (this.#next !== undefined) return true;
    const step = this.#made?.next();
    if (step === undefined) return false;
    if (step.done === true) this.#made = undefined;
    else this.#next = step;
    return this.#next !== undefined;
  }

  /** Waits for the next value; false at the end of the source. */
  async read(): Promise<boolean> {
    while (this.#accept(await this.#source.next())) if (this.hasNext()) return true;
    return false;
  }

  take(): U {
    const next = this.#next;
    if (next === undefined) throw new TypeError("no next value");
    this.#next = undefined;
    return next.value;
  }

  /** Ends the source, which runs its `finally`. */
  async close(): Promise<void> {
    this.#made?.return?.();
    this.#made = undefined;
    await this.#source.return?.();
  }

  #accept(step: IteratorResult<T>): boolean {
    if (step.done === true) return false;
    this.#made = this.#make(step.value)[Symbol.iterator]();
    return true;
  }
}

/** Makes nothing else of a value. */
export function only<T>(value: T): readonly T[] {
  return [value];
}

/** The values that `make` makes of each value of the source. */
export async function* flatMap<T, U>(
  source: AsyncIterable<T>,
  make: (value: T) => Iterable<U>,
): AsyncGenerator<U, void, undefined> {
  const pull = new Pull(source, make);
  try {
    while (pull.hasNext() || (await pull.read())) yield pull.take();
  } finally {
    await pull.close();
  }
}

/** Calls `use` with each value until it answers false, and then ends the source. */
export async function forEach<T>(
  source: AsyncIterable<T>,
  use: (value: T) => boolean | Promise<boolean>,
): Promise<void> {
  const values = source[Symbol.asyncIterator]();
  const accept = (step: IteratorResult<T>): boolean | Promise<boolean> =>
    step.done !== true && use(step.value);
  try {
    let hasMore: boolean | Promise<boolean> = true;
    while (typeof hasMore === "boolean" ? hasMore : await hasMore) {
      hasMore = accept(await values.next());
    }
  } finally {
    await values.return?.();
  }
}
