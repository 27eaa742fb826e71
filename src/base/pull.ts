/**
 * Takes values from a source and holds none of them while it waits for the next one. A `for await`
 * loop, a `yield*` and a variable of a generator do hold the last value: V8 keeps the registers of a
 * suspended function, also those of variables that are out of scope. 80 streams without news held
 * 340 MB of rows that their clients had received (rows of 4 MB, Node 24.21, heap snapshot). Here
 * each step is a call that ends before the next wait, and a taken value is forgotten
 * (test/unit/pull.test.ts).
 *
 *   while (pull.hasNext() || (await pull.read())) use(pull.take());
 *
 * A pull whose source is a pull takes the values that this one has without a promise for each: a watch
 * of 100,000 rows made three promises a row before.
 */
export class Pull<T, U> implements AsyncIterable<U> {
  #open: (() => Promise<AsyncIterable<T>>) | undefined;
  #source: AsyncIterator<T> | Pull<unknown, T> | undefined;
  readonly #make: (value: T) => Iterable<U>;
  /** The values made of the last value of the source. */
  #made: Iterator<U> | undefined;
  #next: { readonly value: U } | undefined;

  /** A source that has to be opened is opened by the first `read`. */
  constructor(
    source: AsyncIterable<T> | (() => Promise<AsyncIterable<T>>),
    make: (value: T) => Iterable<U>,
  ) {
    if (typeof source === "function") this.#open = source;
    else this.#source = iteratorOf(source);
    this.#make = make;
  }

  /** True when a value is ready. */
  hasNext(): boolean {
    while (this.#next === undefined) {
      const step = this.#made?.next();
      if (step !== undefined && step.done !== true) this.#next = step;
      else if (!this.#makeOfReady()) return false;
    }
    return true;
  }

  /** Waits for the next value; false at the end of the source. */
  async read(): Promise<boolean> {
    if (this.#open !== undefined) {
      const opened = this.#open();
      this.#open = undefined;
      this.#source = iteratorOf(await opened);
    }
    while (await this.#readSource()) if (this.hasNext()) return true;
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
    if (this.#source instanceof Pull) await this.#source.close();
    else await this.#source?.return?.();
  }

  [Symbol.asyncIterator](): AsyncIterator<U, void, undefined> {
    return {
      next: async () => {
        const isEnd = !this.hasNext() && !(await this.read());
        return isEnd ? { done: true, value: undefined } : { done: false, value: this.take() };
      },
      return: async () => {
        await this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /** Takes the next value of a source that is a pull and has one. */
  #makeOfReady(): boolean {
    this.#made = undefined;
    if (!(this.#source instanceof Pull) || !this.#source.hasNext()) return false;
    this.#made = this.#make(this.#source.take())[Symbol.iterator]();
    return true;
  }

  async #readSource(): Promise<boolean> {
    if (this.#source instanceof Pull) return this.#source.read();
    return this.#source !== undefined && this.#accept(await this.#source.next());
  }

  #accept(step: IteratorResult<T>): boolean {
    if (step.done === true) return false;
    this.#made = this.#make(step.value)[Symbol.iterator]();
    return true;
  }
}

function iteratorOf<T>(source: AsyncIterable<T>): AsyncIterator<T> | Pull<unknown, T> {
  return source instanceof Pull ? source : source[Symbol.asyncIterator]();
}

/** Makes nothing else of a value. */
export function only<T>(value: T): readonly T[] {
  return [value];
}

/**
 * The values that `make` makes of each value of the source. They end without an error where `onError`
 * returns for an error of the source.
 */
export async function* flatMap<T, U>(
  source: AsyncIterable<T> | (() => Promise<AsyncIterable<T>>),
  make: (value: T) => Iterable<U>,
  onError?: (error: unknown) => void,
): AsyncGenerator<U, void, undefined> {
  const pull = new Pull(source, make);
  try {
    while (pull.hasNext() || (await pull.read())) yield pull.take();
  } catch (error) {
    if (onError === undefined) throw error;
    onError(error);
  } finally {
    await pull.close();
  }
}

/** Calls `use` with each value until it answers false, and then ends the source. */
export async function forEach<T>(
  source: AsyncIterable<T>,
  use: (value: T) => boolean | Promise<boolean>,
): Promise<void> {
  const pull = source instanceof Pull ? source : new Pull(source, only<T>);
  const step = (): boolean | Promise<boolean> => use(pull.take());
  try {
    let hasMore: boolean | Promise<boolean> = true;
    while (typeof hasMore === "boolean" ? hasMore : await hasMore) {
      hasMore = (pull.hasNext() || (await pull.read())) && step();
    }
  } finally {
    await pull.close();
  }
}
