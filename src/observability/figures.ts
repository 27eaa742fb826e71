/**
 * The state of one instance in few figures, read from the registry of /metrics at the time of the
 * call. Nothing is counted here, and no history is kept: a reader computes rates from two answers of
 * the same instance.
 */
import type { Histogram, Metric } from "prom-client";
import { type Clock, msOf } from "../base/clock.ts";
import type { Metrics } from "./metrics.ts";
import { packageVersion } from "./version.ts";

/** The sum of the values of a metric by one of its labels. */
type ByLabel = Readonly<Record<string, number>>;

export interface Figures {
  /** Another id after each start: the counts then begin at 0 again. */
  readonly instance: string;
  readonly version: string;
  readonly startedAtMs: number;
  readonly atMs: number;
  readonly isReady: boolean;
  /** Other instances. */
  readonly instancesHeard: number;
  readonly rowsStored: ByLabel;
  readonly pushStreamEvents: number;
  readonly calls: number;
  readonly requests: number;
  readonly commit: Durations;
  readonly queueRows: number;
  readonly queueBytes: number;
  readonly watchers: number;
  readonly pushStreams: number;
  readonly connections: ByLabel;
  readonly memoryBytes: number;
  readonly refusals: readonly Refusal[];
}

interface Durations {
  readonly count: number;
  readonly seconds: number;
  /** The number of durations up to each bound; the last bound is open. */
  readonly buckets: readonly { readonly upToSeconds: number | undefined; readonly count: number }[];
}

interface Refusal {
  readonly reason: string;
  readonly count: number;
  readonly lastAtMs: number;
}

export interface FigureParts {
  readonly instance: string;
  readonly startedAtMs: number;
  readonly metrics: Metrics;
  readonly clock: Clock;
}

export async function readFigures(parts: FigureParts): Promise<Figures> {
  const { metrics, clock, instance, startedAtMs } = parts;
  const counts = await byLabel(metrics.refusals, "reason");
  const times = await byLabel(metrics.refusalTimes, "reason");
  const refusals = Object.entries(counts).map(([reason, count]) => {
    return { reason, count, lastAtMs: Math.round((times[reason] ?? 0) * 1_000) };
  });
  return {
    instance,
    version: packageVersion(),
    startedAtMs,
    atMs: msOf(clock.nowMicros()),
    isReady: (await total(metrics.ready)) === 1,
    instancesHeard: await total(metrics.instancesHeard),
    rowsStored: await byLabel(metrics.rowsStored, "stream"),
    pushStreamEvents: await total(metrics.pushStreamEvents),
    calls: await total(metrics.calls),
    requests: await total(metrics.httpRequests),
    commit: await durationsOf(metrics.commitSeconds),
    queueRows: await total(metrics.queueRows),
    queueBytes: await total(metrics.queueBytes),
    watchers: await total(metrics.watchers),
    pushStreams: await total(metrics.pushStreams),
    connections: await byLabel(metrics.connections, "server"),
    memoryBytes: process.memoryUsage.rss(),
    refusals: refusals.toSorted((one, other) => other.lastAtMs - one.lastAtMs),
  };
}

async function total(metric: Pick<Metric, "get">): Promise<number> {
  const { values } = await metric.get();
  return values.reduce((sum, { value }) => sum + value, 0);
}

async function byLabel(metric: Pick<Metric, "get">, label: string): Promise<ByLabel> {
  const sums: Record<string, number> = {};
  for (const { labels, value } of (await metric.get()).values) {
    const name = String(Reflect.get(labels, label));
    sums[name] = (sums[name] ?? 0) + value;
  }
  return sums;
}

async function durationsOf(histogram: Pick<Histogram, "get">): Promise<Durations> {
  const { values } = await histogram.get();
  const ending = (end: string) =>
    values.find(({ metricName }) => metricName?.endsWith(end) === true)?.value ?? 0;
  const buckets = values
    .filter(({ metricName }) => metricName?.endsWith("_bucket") === true)
    .map(({ labels: { le }, value: count }) => {
      return { upToSeconds: typeof le === "number" ? le : undefined, count };
    });
  return { count: ending("_count"), seconds: ending("_sum"), buckets };
}
