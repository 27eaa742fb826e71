import { Counter, Gauge, Histogram, Registry } from "prom-client";

const PREFIX = "session_ledger_";

/** Makes the instruments of one registry, named `session_ledger_` and their name. */
export class Instruments {
  readonly registry = new Registry();

  counter<T extends string = never>(
    name: string,
    help: string,
    labelNames: readonly T[] = [],
    collect?: (counter: Counter<T>) => void,
  ): Counter<T> {
    const counter: Counter<T> = new Counter({
      ...this.#named(name, help),
      labelNames,
      ...(collect === undefined ? {} : { collect: () => collect(counter) }),
    });
    return counter;
  }

  /** `collect` is called by each scrape, which waits for it. */
  gauge<T extends string = never>(
    name: string,
    help: string,
    labelNames: readonly T[] = [],
    collect?: (gauge: Gauge<T>) => void | Promise<void>,
  ): Gauge<T> {
    const gauge: Gauge<T> = new Gauge({
      ...this.#named(name, help),
      labelNames,
      ...(collect === undefined ? {} : { collect: () => collect(gauge) }),
    });
    return gauge;
  }

  histogram<T extends string = never>(
    name: string,
    help: string,
    buckets: readonly number[],
    labelNames: readonly T[] = [],
  ): Histogram<T> {
    return new Histogram({ ...this.#named(name, help), buckets: [...buckets], labelNames });
  }

  #named(name: string, help: string) {
    return { name: `${PREFIX}${name}`, help, registers: [this.registry] };
  }
}
