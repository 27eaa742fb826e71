/** Rates and percentiles of the service, from two answers with counts since its start. */
import { describe, expect, test } from "vitest";
import {
  type History,
  POINTS_MAX,
  type ServiceFigures,
  withFigures,
} from "../../web/src/model/service-history.ts";

const BOUNDS = [0.001, 0.01, 0.1, undefined];

function figures(
  seconds: number,
  more: Partial<ServiceFigures> = {},
  commits: readonly number[] = [0, 0, 0, 0],
): ServiceFigures {
  return {
    instance: "one",
    version: "0.1.0",
    started_at: "2026-01-01T00:00:00.000Z",
    at: new Date(Date.UTC(2026, 0, 1) + seconds * 1_000).toISOString(),
    ready: true,
    instances_heard: 0,
    rows_stored: { messages: 0, events: 0 },
    push_stream_events: 0,
    calls: 0,
    requests: 0,
    commits: {
      count: commits.at(-1) ?? 0,
      seconds: 0,
      buckets: commits.map((count, at) => {
        const bound = BOUNDS[at];
        return { ...(bound === undefined ? {} : { up_to_seconds: bound }), count };
      }),
    },
    queue: { rows: 3, bytes: 5 },
    watchers: 2,
    push_streams: 1,
    connections: { grpc: 0, http: 0 },
    memory_bytes: 7,
    refusals: [],
    ...more,
  };
}

function after(...answers: readonly ServiceFigures[]): History | undefined {
  return answers.reduce<History | undefined>(withFigures, undefined);
}

test("two answers give rates between them, and the newest gauges", () => {
  const first = figures(10, { rows_stored: { messages: 5, events: 100 }, calls: 1, requests: 2 });
  const second = figures(14, { rows_stored: { messages: 9, events: 200 }, calls: 3, requests: 8 });
  expect(after(first)?.points).toEqual([]);
  expect(after(first, second)?.points).toEqual([
    {
      atMs: Date.parse(second.at),
      messagesPerSecond: 1,
      eventsPerSecond: 25,
      callsPerSecond: 2,
      commitP50Ms: undefined,
      commitP99Ms: undefined,
      queueRows: 3,
      watchers: 2,
      pushStreams: 1,
      memoryBytes: 7,
    },
  ]);
});

test("a restart, another instance or an older answer gives no rate", () => {
  const first = figures(10, { rows_stored: { messages: 0, events: 100 } });
  const restarted = figures(12, { instance: "two" });
  expect(after(first, restarted)).toEqual({ latest: restarted, points: [] });
  for (const seconds of [10, 9]) {
    expect(after(first, figures(seconds))).toEqual({ latest: first, points: [] });
  }
});

test("the history is kept for ten minutes", () => {
  const answers = Array.from({ length: POINTS_MAX + 11 }, (_, at) => figures(2 * at));
  const points = after(...answers)?.points ?? [];
  expect(points).toHaveLength(POINTS_MAX);
  expect(points.at(-1)?.atMs).toBe(Date.parse(answers.at(-1)?.at ?? ""));
});

describe("the time of a commit", () => {
  // Above a bound nothing is known, so the bound is shown.
  test.each([
    ["evenly inside its bucket", [0, 100, 100, 100], 5.5, 9.91],
    ["at the bound of the last bucket with one", [0, 0, 0, 10], 100, 100],
    ["over several buckets", [50, 90, 99, 100], 1, 100],
    ["of a single commit", [0, 0, 1, 1], 55, 99.1],
  ])("is placed %s", (_, commits, p50, p99) => {
    const before = figures(0, {}, [7, 7, 8, 9]);
    const later = figures(
      2,
      {},
      commits.map((count, at) => count + ([7, 7, 8, 9][at] ?? 0)),
    );
    const point = after(before, later)?.points[0];
    expect(point?.commitP50Ms).toBeCloseTo(p50, 6);
    expect(point?.commitP99Ms).toBeCloseTo(p99, 6);
  });
});
