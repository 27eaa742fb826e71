import { Counter, Gauge, Histogram, Registry } from "prom-client";

const PREFIX = "session_ledger_";

/** How the gauges of several workers become one, where they are not added up. */
const AGGREGATORS: Readonly<Record<string, "max" | "min" | "first">> = {
  build_info: "first",
  disk_free_bytes: "max",
  feed_lag_seconds: "max",
  instances_heard: "max",
  limit_used_ratio: "max",
  queue_wait_seconds: "max",
  ready: "max",
  retention_passed_timestamp_seconds: "max",
  search_index_passed_timestamp_seconds: "max",
  sessions_waiting: "max",
  wake_ups_connected: "min",
};

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
      aggregator: AGGREGATORS[name] ?? "sum",
      ...(collect === undefined ? {} : { collect: () => collect(gauge) }),
    });
    return gauge;
  }

  /** A gauge of a number that another part of the service has; 0 before the part names it. */
  watched(name: string, help: string): (read: () => number) => void {
    let readNow: (() => number) | undefined;
    this.gauge(name, help, [], (gauge) => gauge.set(readNow?.() ?? 0));
    return (read) => void (readNow = read);
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
