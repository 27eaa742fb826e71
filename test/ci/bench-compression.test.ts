/** What the benchmark of compression compares with what: each side has a second opinion here. */
import { expect, test } from "vitest";
import {
  ARRIVALS,
  arrived,
  compressionLines,
  printedTable,
  ratiosOf,
  sumOf,
} from "../bench/compression-table.ts";
import { longSession, textStreams } from "../bench/corpus.ts";
import { upstreamRows } from "../bench/upstream-rules.ts";
import { mergeFragments } from "../support/merging.ts";
import { ownStreams, type Stream, type StreamEvent } from "../support/streams.ts";

const WITHOUT_AGE = { maxAgeMs: Number.POSITIVE_INFINITY };

function event(value: Readonly<Record<string, unknown>>): StreamEvent {
  return { eventType: String(value["type"]), payload: JSON.stringify(value) };
}

function text(messageId: string, delta: string, more: object = {}): StreamEvent {
  return event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta, ...more });
}

function rowsOf(events: readonly StreamEvent[], atMs: (index: number) => number = () => 0) {
  const timed = events.map((one, index) => ({ ...one, atMs: atMs(index) }));
  return (limits: { readonly maxAgeMs: number }) =>
    upstreamRows(timed, limits).map((payload) => JSON.parse(payload));
}

test("upstream merges adjacent fragments of one id whatever their other fields say, and keeps the first", () => {
  const events = [text("1", "a", { timestamp: 1 }), text("1", "b", { timestamp: 2, rawEvent: {} })];
  expect(rowsOf(events)(WITHOUT_AGE)).toEqual([
    { type: "TEXT_MESSAGE_CONTENT", messageId: "1", delta: "ab", timestamp: 1 },
  ]);
});

test.each([
  ["another id", text("2", "b")],
  ["another type", event({ type: "REASONING_MESSAGE_CONTENT", messageId: "1", delta: "b" })],
  ["an event of type RAW", event({ type: "RAW", event: {} })],
  ["a boundary", event({ type: "TEXT_MESSAGE_END", messageId: "1" })],
  ["a chunk", event({ type: "TEXT_MESSAGE_CHUNK", messageId: "1", delta: "b" })],
])("%s ends a row of upstream", (_name, between) => {
  expect(rowsOf([text("1", "a"), between, text("1", "c")])(WITHOUT_AGE)).toHaveLength(3);
});

test("upstream merges arguments of one call, and ids in either spelling", () => {
  const args = (id: object) => event({ type: "TOOL_CALL_ARGS", ...id, delta: "{" });
  for (const [one, other] of [
    [{ toolCallId: "1" }, { toolCallId: "2" }],
    [{ tool_call_id: "1" }, { tool_call_id: "2" }],
  ] as const) {
    expect(rowsOf([args(one), args(one)])(WITHOUT_AGE)).toHaveLength(1);
    expect(rowsOf([args(one), args(other)])(WITHOUT_AGE)).toHaveLength(2);
  }
});

test("a row of a live stream has the fragments within 250 ms of its first", () => {
  const events = Array.from({ length: 26 }, () => text("1", "a"));
  const rows = rowsOf(events, (index) => 20 * index)({ maxAgeMs: 250 });
  expect(rows.map(({ delta }) => String(delta).length)).toEqual([13, 13]); // 0 to 240, 260 to 500.
});

test("the table has the same counts as an independent merge of the same streams", () => {
  const streams = ownStreams();
  const total = sumOf("total", compressionLines(streams, ARRIVALS.whole));
  const merged = streams.flatMap(({ events }) => mergeFragments(events));
  const raw = streams.flatMap(({ events }) => events.map(({ payload }) => payload));
  expect(total.rawEvents).toBe(raw.length);
  expect(total.rawBytes).toBe(Buffer.byteLength(raw.join("")));
  expect(total.ours.rows).toBe(merged.length);
  const payloads = merged.map(({ payload }) => payload).join("");
  expect(total.ours.bytes - total.ours.indexBytes).toBe(Buffer.byteLength(payloads));
  expect(total.plain.indexBytes + total.timed.indexBytes).toBe(total.ours.indexBytes);
});

test("a live stream has more rows, and with timestamps its index has times", () => {
  const events = Array.from({ length: 100 }, () => text("1", "word "));
  const streams = [{ agent: "a", scenario: "long", events }];
  const lines = Object.entries(ARRIVALS).map(([name, arrival]) => {
    const [line] = compressionLines(streams, arrival);
    return [name, { rows: line?.ours.rows, isTimed: (line?.timed.indexBytes ?? 0) > 0 }];
  });
  expect(Object.fromEntries(lines)).toEqual({
    whole: { rows: 1, isTimed: false },
    "whole, with timestamps": { rows: 1, isTimed: true },
    live: { rows: 8, isTimed: false },
    "live, with timestamps": { rows: 8, isTimed: true },
  });
  expect(arrived(events, ARRIVALS.live).at(-1)?.atMs).toBe(2_000);
});

test("each line of the table has the same width, and a share of nothing is a dash", () => {
  const events = [text("1", "a"), text("1", "b")];
  const lines = compressionLines([{ agent: "a", scenario: "s", events }], ARRIVALS.whole);
  const total = sumOf("total", lines);
  expect(ratiosOf(total)).toMatchObject({ rows: 2, timedIndexShare: Number.NaN });
  const printed = printedTable(lines, total);
  expect(printed).toHaveLength(3);
  expect(new Set(printed.map((line) => line.length)).size).toBe(1);
  expect(printed.at(-1)).toMatch(/-$/);
});

test("text streams are those of agents that send almost only fragments", () => {
  const stream = (agent: string, events: readonly StreamEvent[]): Stream => ({
    agent,
    scenario: "s",
    events,
  });
  const talks = stream("talks", [text("1", "a"), text("1", "b"), text("1", "c")]);
  const short = stream("talks", [event({ type: "RUN_ERROR", message: "no" })]);
  const acts = stream("acts", [event({ type: "RAW", event: {} }), text("1", "a")]);
  const silent = stream("talks", []);
  const chosen = textStreams({ name: "x", streams: [talks, acts, short, silent] });
  expect(chosen.streams).toEqual([talks, short]);
  expect(textStreams({ name: "x", streams: [acts] }).name).toBe("made up");
});

test("a long session repeats the streams up to its length", () => {
  const streams = ownStreams();
  const once = streams.flatMap(({ events }) => events);
  const session = longSession(streams, 2 * once.length + 3);
  expect(session).toEqual([...once, ...once, ...once.slice(0, 3)]);
});
