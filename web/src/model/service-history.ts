/**
 * What the state of the service tells over time. Each answer has counts since the start of an
 * instance; two answers of the same instance give rates. The history is kept by the page alone.
 */

/** Of `GET /service`. */
export interface ServiceFigures {
  readonly instance: string;
  readonly version: string;
  readonly started_at: string;
  readonly at: string;
  readonly ready: boolean;
  readonly instances_heard: number;
  readonly rows_stored: { readonly messages: number; readonly events: number };
  readonly push_stream_events: number;
  readonly calls: number;
  readonly requests: number;
  readonly commits: Durations;
  readonly queue: { readonly rows: number; readonly bytes: number };
  readonly watchers: number;
  readonly push_streams: number;
  readonly connections: { readonly grpc: number; readonly http: number };
  readonly memory_bytes: number;
  readonly refusals: readonly Refusal[];
}

interface Durations {
  readonly count: number;
  readonly seconds: number;
  readonly buckets: readonly { readonly up_to_seconds?: number; readonly count: number }[];
}

export interface Refusal {
  readonly reason: string;
  readonly count: number;
  readonly last_at: string;
}

/** The time between two answers. Undefined: nothing was measured in it. */
export interface Point {
  readonly atMs: number;
  readonly messagesPerSecond: number;
  readonly eventsPerSecond: number;
  readonly callsPerSecond: number;
  readonly commitP50Ms: number | undefined;
  readonly commitP99Ms: number | undefined;
  readonly queueRows: number;
  readonly watchers: number;
  readonly pushStreams: number;
  readonly memoryBytes: number;
}

export interface History {
  readonly latest: ServiceFigures;
  /** Of the same instance, oldest first. */
  readonly points: readonly Point[];
}

/** Ten minutes at one answer in two seconds. */
export const POINTS_MAX = 300;

/** Another instance, or one that started again, begins another history. */
export function withFigures(history: History | undefined, latest: ServiceFigures): History {
  if (history === undefined || history.latest.instance !== latest.instance)
    return { latest, points: [] };
  const point = pointOf(history.latest, latest);
  if (point === undefined) return history;
  return { latest, points: [...history.points, point].slice(-POINTS_MAX) };
}

/** Undefined: the second answer is not the later one. */
function pointOf(before: ServiceFigures, after: ServiceFigures): Point | undefined {
  const atMs = Date.parse(after.at);
  const seconds = (atMs - Date.parse(before.at)) / 1_000;
  if (!(seconds > 0)) return undefined;
  const rate = (count: (figures: ServiceFigures) => number): number =>
    (count(after) - count(before)) / seconds;
  const commits = between(before.commits, after.commits);
  return {
    atMs,
    messagesPerSecond: rate(({ rows_stored: rows }) => rows.messages),
    eventsPerSecond: rate(({ rows_stored: rows }) => rows.events),
    callsPerSecond: rate(({ calls, requests }) => calls + requests),
    commitP50Ms: quantileMs(commits, 0.5),
    commitP99Ms: quantileMs(commits, 0.99),
    queueRows: after.queue.rows,
    watchers: after.watchers,
    pushStreams: after.push_streams,
    memoryBytes: after.memory_bytes,
  };
}

interface Bucket {
  /** Infinity: the last one. */
  readonly upToSeconds: number;
  readonly count: number;
}

function between(before: Durations, after: Durations): readonly Bucket[] {
  return after.buckets.map(
    ({ up_to_seconds: upToSeconds = Number.POSITIVE_INFINITY, count }, at) => {
      return { upToSeconds, count: count - (before.buckets[at]?.count ?? 0) };
    },
  );
}

/** As Prometheus' histogram_quantile: evenly spread inside a bucket, and the last one is its start. */
function quantileMs(buckets: readonly Bucket[], quantile: number): number | undefined {
  const all = buckets.at(-1)?.count ?? 0;
  if (all === 0) return undefined;
  const rank = quantile * all;
  let below = { upToSeconds: 0, count: 0 };
  for (const bucket of buckets) {
    if (bucket.count < rank || bucket.count === below.count) {
      below = bucket;
      continue;
    }
    if (bucket.upToSeconds === Number.POSITIVE_INFINITY) break;
    const share = (rank - below.count) / (bucket.count - below.count);
    return 1_000 * (below.upToSeconds + share * (bucket.upToSeconds - below.upToSeconds));
  }
  return 1_000 * Math.min(below.upToSeconds, buckets.at(-2)?.upToSeconds ?? 0);
}
