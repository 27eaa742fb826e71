/** Values that were taken are freed while their receiver waits: each test counts those still in memory. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { flatMap, forEach, only, Pull } from "../../src/base/pull.ts";
import { eventually } from "../support/eventually.ts";

setFlagsFromString("--expose-gc");

class Source {
  readonly #made: WeakRef<object>[] = [];
  readonly #last = Promise.withResolvers<void>();

  async *values(count: number): AsyncGenerator<object, void, undefined> {
    while (this.#made.length < count) yield this.#make();
    await this.#last.promise;
  }

  get made(): number {
    return this.#made.length;
  }

  get inMemory(): number {
    runInNewContext("gc()");
    return this.#made.filter((value) => value.deref() !== undefined).length;
  }

  end(): void {
    this.#last.resolve();
  }

  #make(): object {
    const value = { text: "x".repeat(1_000) };
    this.#made.push(new WeakRef(value));
    return value;
  }
}

const LAYERS = [
  ["forEach", (values) => values],
  ["flatMap", (values) => flatMap(flatMap(values, only), only)],
  ["flatMap of a generator", (values) => flatMap(values, oneByOne)],
  ["pull", (values) => pulled(values)],
  ["pull of a pull that is opened", (values) => new Pull(async () => new Pull(values, only), only)],
] as const satisfies readonly (readonly [
  string,
  (values: AsyncIterable<object>) => AsyncIterable<object>,
])[];

test.each(LAYERS)("%s holds no value while it waits for the next one", async (_name, layer) => {
  const source = new Source();
  let used = 0;
  const over = forEach(layer(source.values(3)), () => {
    used += 1;
    return used % 2 === 0 ? true : Promise.resolve(true);
  });
  await eventually(() => expect([source.made, used, source.inMemory]).toEqual([3, 3, 0]));
  source.end();
  await over;
});

test("a pull whose values are awaited one by one, or are left out, holds none", async () => {
  for (const make of [only, () => []]) {
    const source = new Source();
    const over = usedSlowly(new Pull(source.values(3), make));
    await eventually(() => expect([source.made, source.inMemory]).toEqual([3, 0]));
    source.end();
    await over;
  }
});

test("the source ends when its receiver stops or fails", async () => {
  const ends: string[] = [];
  async function* numbers(name: string): AsyncGenerator<number, void, undefined> {
    try {
      for (let next = 0; ; next += 1) yield next;
    } finally {
      ends.push(name);
    }
  }
  await forEach(flatMap(numbers("stopped"), only), (value) => value < 3);
  const failing = forEach(flatMap(numbers("failed"), only), () => {
    throw new RangeError("no more");
  });
  await expect(failing).rejects.toThrow("no more");
  expect(ends).toEqual(["stopped", "failed"]);
});

function* oneByOne(value: object): Generator<object> {
  yield value;
}

async function usedSlowly(pull: Pull<object, object>): Promise<void> {
  const use = async (value: object): Promise<void> => {
    await Promise.resolve();
    expect(value).toBeDefined();
  };
  while (pull.hasNext() || (await pull.read())) await use(pull.take());
}

async function* pulled(values: AsyncIterable<object>): AsyncGenerator<object, void, undefined> {
  const pull = new Pull(values, only);
  while (pull.hasNext() || (await pull.read())) yield pull.take();
}
