/** The arithmetic of the benchmarks: a figure that is calculated wrongly looks like any other. */
import { expect, test } from "vitest";
import { bodyOf, payloadOf } from "../bench/bodies.ts";
import { summariseProfile } from "../bench/cpu-profile.ts";
import { latencyOf, median, medians, percentile, ratioOf } from "../bench/figures.ts";
import { framed } from "../bench/grpc-messages.ts";
import { readLoadLog } from "../bench/h2load-log.ts";
import { readOptions } from "../bench/options.ts";
import { type Shape, SHAPES } from "../bench/shapes.ts";

test("a percentile is the nearest rank", () => {
  const hundred = Array.from({ length: 100 }, (_, n) => n + 1);
  expect(percentile(hundred, 0.5)).toBe(50);
  expect(percentile(hundred, 0.99)).toBe(99);
  expect(percentile(hundred, 1)).toBe(100);
  expect(percentile([7], 0.01)).toBe(7);
  expect(percentile([], 0.5)).toBeNaN();
});

test("latencies are sorted by size, not as text", () => {
  expect(latencyOf([9, 10, 100, 1])).toEqual({ p50Ms: 9, p99Ms: 100, maxMs: 100 });
});

test("a median is the middle, or half way between the two middles", () => {
  expect(median([10, 9, 1])).toBe(9);
  expect(median([4, 1, 2, 3])).toBe(2.5);
  expect(median([])).toBeNaN();
});

test("a ratio is the median of the ratios of the rounds", () => {
  // The median of each side, divided, would be 30 / 100.
  expect(ratioOf([10, 30, 90], [100, 50, 180])).toEqual({ median: 0.5, rounds: [0.1, 0.6, 0.5] });
});

test("medians are taken field by field", () => {
  expect(
    medians([
      { a: 1, b: 30 },
      { a: 2, b: 20 },
      { a: 3, b: 10 },
    ]),
  ).toEqual({ a: 2, b: 20 });
  expect(medians([])).toEqual({});
});

test("a load log counts answers, and takes the rate while all processes work", () => {
  // The second process begins at 1 s and is still there at 5 s, when the first ends.
  const first = [0, 1, 2, 3, 4].map((s) => line({ beganS: s, tookMs: 1_000 }));
  const second = [1, 2, 3, 4, 5].map((s) => line({ beganS: s, tookMs: 500 }));
  const failed = line({ beganS: 2, tookMs: 1_000, status: -1 });
  const log = readLoadLog([first.join(""), second.join("") + failed]);
  expect(log.answered).toBe(10);
  expect(log.otherwise).toBe(1);
  expect(log.seconds).toBe(5.5);
  expect(log.together).toBeCloseTo(4 / 5.5);
  // Of the first those that end at 2 to 5 s, of the second those at 1.5 to 4.5 s.
  expect(log.answeredPerSecond).toBe(8 / 4);
  expect(log.tookMs.toSorted((a, b) => a - b)).toEqual([
    ...Array(5).fill(500),
    ...Array(5).fill(1_000),
  ]);
});

test("processes that hardly overlap are counted over the whole run", () => {
  const log = readLoadLog([line({ beganS: 0, tookMs: 1_000 }), line({ beganS: 3, tookMs: 1_000 })]);
  expect(log.together).toBe(0);
  expect(log.answeredPerSecond).toBe(2 / 4);
});

test("every payload has the size that the documents give", () => {
  for (const event of ["TEXT_MESSAGE_CONTENT", "RUN_STARTED"] as const) {
    expect(payloadOf(event)).toHaveLength(600);
  }
});

test.each(Object.entries<Shape>(SHAPES))(
  "%s: a body rotates through its own sessions only",
  (_name, shape) => {
    const seen = Array.from({ length: shape.connections }, (_, connection) => {
      const body = bodyOf(shape, { run: "7", connection });
      const bytes = Buffer.from(framed(body.message));
      expect(bytes.readUInt32BE(1)).toBe(bytes.length - 5);
      const written = new Set<string>();
      for (let tick = 0; tick < 20; tick += 1) {
        if (body.turning !== undefined) {
          bytes.write(body.turning.textAt(tick), body.turning.offset, "latin1");
        }
        written.add(/bench-7-\w+-\d+/.exec(bytes.toString("latin1"))?.[0] ?? "");
      }
      expect([...written].toSorted()).toEqual(body.sessionIds);
      return body.sessionIds;
    });
    const sessions = new Set(seen.flat());
    const each = shape.sessionsEach;
    expect(sessions.size).toBe(each === "shared" ? 1 : shape.connections * each);
  },
);

test("a keyed body has another key at each tick, of the same length", () => {
  const body = bodyOf(SHAPES.keyed, { run: "7", connection: 3 });
  const bytes = Buffer.from(framed(body.message));
  const keys = new Set<string>();
  for (const tick of [0, 1, 255, 0xffffff]) {
    bytes.write(body.turning?.textAt(tick) ?? "", body.turning?.offset ?? 0, "latin1");
    keys.add(/key-3-[0-9a-f]{6}/.exec(bytes.toString("latin1"))?.[0] ?? "");
  }
  expect([...keys]).toEqual(["key-3-000000", "key-3-000001", "key-3-0000ff", "key-3-ffffff"]);
});

test("a profile is summed by file and function, without idle time and the start", () => {
  const root = "file:///project/";
  const frame = (functionName: string, url = "") => ({ functionName, url, lineNumber: 9 });
  const nodes = [
    { id: 1, callFrame: frame("(idle)") },
    { id: 2, callFrame: frame("append", `${root}src/store/append.ts`) },
    { id: 3, callFrame: frame("write", `${root}node_modules/@grpc/grpc-js/build/a.js`) },
    { id: 4, callFrame: frame("(garbage collector)") },
  ];
  // Samples at 1100 (before the load), 1200, 1300, 1600, 2600.
  const samples = [2, 2, 3, 4, 1];
  const timeDeltas = [100, 100, 100, 300, 1_000];
  const profile = JSON.stringify({ nodes, startTime: 1_000, samples, timeDeltas });
  const summary = summariseProfile(profile, { root, fromMicros: 1_150, toMicros: 9_000 });
  expect(summary.busyMs).toBe(0.5);
  expect(summary.places).toEqual([
    { name: "(garbage collector)", percent: 60 },
    { name: "src/store", percent: 20 },
    { name: "@grpc/grpc-js", percent: 20 },
  ]);
  expect(summary.functions.map(({ name }) => name)).toContain("append src/store/append.ts:10");
});

test("the command line selects benchmarks, and refuses unknown ones", () => {
  expect(readOptions(["push", "--rounds", "5", "--calls", "100"])).toEqual({
    benches: ["push"],
    calls: 100,
    seconds: undefined,
    rounds: 5,
    quick: false,
  });
  expect(readOptions(["all", "--quick"])?.benches).toEqual([
    "push",
    "read",
    "memory",
    "idle",
    "watch",
    "join",
    "compression",
    "redaction",
    "stream",
    "writer",
    "sdk",
    "auth",
    "doors",
    "hostile",
    "flow",
    "turns",
    "inspector",
    "search",
  ]);
  expect(readOptions(["profile", "push"])?.benches).toEqual(["profile push"]);
  expect(readOptions(["profile", "stream"])?.benches).toEqual(["profile stream"]);
  expect(readOptions(["compression", "--corpus", "streams"])?.corpus).toBe("streams");
  expect(readOptions(["against", "--old", "../old"])?.old).toBe("../old");
});

test.each([
  [[]],
  [["pull"]],
  [["push", "read"]],
  [["profile", "read"]],
  [["push", "--calls", "0"]],
  [["push", "--x"]],
  [["against"]],
  [["push", "--old", "../old"]],
])("the command line %j is refused", (args) => expect(readOptions(args)).toBeUndefined());

function line(request: {
  readonly beganS: number;
  readonly tookMs: number;
  readonly status?: number;
}): string {
  const beganMicros = 1_700_000_000_000_000 + request.beganS * 1_000_000;
  return `${beganMicros}\t${request.status ?? 200}\t${request.tookMs * 1_000}\n`;
}
