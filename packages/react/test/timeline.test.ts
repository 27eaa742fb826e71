import { describe, expect, test } from "vitest";
import type { Bar, TimedRow } from "../src/model/bars.ts";
import { lanesOf } from "../src/model/lanes.ts";
import { Timeline } from "../src/model/timeline.ts";
import { waitsOf } from "../src/model/waits.ts";
import { ownStreams } from "../../../test/support/streams.ts";

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

/** Each event is a row of its own, one second after the one before, or at its `at`. */
function timelineOf(events: readonly Event[]): Timeline {
  const timeline = new Timeline();
  events.forEach(({ at, ...event }, index) => {
    const seq = index + 1;
    const atMs = typeof at === "number" ? at : seq * 1_000;
    const payload = JSON.stringify(event);
    const times = { atMs, endMs: atMs, storedMs: atMs };
    const row = { seq, lastSeq: seq, type: event.type, ...times, count: 1 };
    timeline.add({ ...row, bytes: payload.length, payload });
  });
  return timeline;
}

const START: Event = { type: "RUN_STARTED", threadId: "t", runId: "r1" };
const FINISH: Event = { type: "RUN_FINISHED", threadId: "t", runId: "r1" };
const call = (id: string): Event => ({
  type: "TOOL_CALL_START",
  toolCallId: id,
  toolCallName: `tool_${id}`,
});
const called = (id: string): Event => ({ type: "TOOL_CALL_END", toolCallId: id });
const result = (id: string): Event => ({
  type: "TOOL_CALL_RESULT",
  messageId: `m-${id}`,
  toolCallId: id,
  content: "ok",
});
const step = (name: string): Event => ({ type: "STEP_STARTED", stepName: name });
const stepped = (name: string): Event => ({ type: "STEP_FINISHED", stepName: name });

/** Each bar in a line, indented below its parent. */
function outline(bars: readonly Bar[]): readonly string[] {
  const depthOf = ({ parent }: Bar): number => (parent === undefined ? 0 : 1 + depthOf(parent));
  return bars.map((bar) => {
    const seconds = `${bar.startMs / 1_000}-${bar.endMs / 1_000}`;
    return `${"  ".repeat(depthOf(bar))}${bar.kind} ${bar.name} ${seconds} ${bar.state}`;
  });
}

describe("bars", () => {
  test("a run has its steps, and a step its texts and calls", () => {
    const { bars, marks } = timelineOf([
      START,
      step("plan"),
      { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "Hi" },
      { type: "TEXT_MESSAGE_END", messageId: "m1" },
      stepped("plan"),
      { type: "STATE_SNAPSHOT", snapshot: {} },
      FINISH,
    ]);
    expect(outline(bars)).toEqual([
      "run r1 1-8 done",
      "  step plan 2-6 done",
      "    text assistant 3-5 done",
    ]);
    expect(marks.map(({ seq, category, parent }) => [seq, category, parent?.name])).toEqual([
      [7, "state", "r1"],
    ]);
  });

  test("a tool call has a time for its arguments and a time until its result", () => {
    const { bars } = timelineOf([START, call("a"), called("a"), { ...result("a"), at: 9_000 }]);
    expect(bars[1]).toMatchObject({
      startMs: 2_000,
      calledMs: 3_000,
      resultMs: 9_000,
      endMs: 9_000,
    });
    expect(bars[1]?.state).toBe("done");
    expect(bars[0]?.run?.quiet).toContainEqual({
      startMs: 3_000,
      endMs: 9_000,
      seq: 4,
      isToolRunning: true,
    });
  });

  test("parallel calls have lanes of their own, and the next call takes the first free one", () => {
    const both = [call("a"), called("a"), call("b"), called("b")];
    const rest = [result("a"), call("c"), called("c"), result("b"), result("c")];
    const { bars } = timelineOf([START, ...both, ...rest, FINISH]);
    expect(bars.map(({ name }) => name)).toEqual(["r1", "tool_a", "tool_b", "tool_c"]);
    expect([...lanesOf(bars).lines]).toEqual([0, 1, 2, 1]);
  });

  test("a call without a result ends at its END when the run is over", () => {
    const events = [START, call("a"), called("a"), { ...FINISH, at: 60_000 }];
    expect(timelineOf(events.slice(0, 3)).bars[1]?.state).toBe("open");
    expect(timelineOf(events).bars[1]).toMatchObject({ state: "done", endMs: 3_000, toSeq: 3 });
  });

  test("two thousand calls without results need one line when their run is over", () => {
    const ids = Array.from({ length: 2_000 }, (_, index) => String(index));
    const { bars } = timelineOf([START, ...ids.flatMap((id) => [call(id), called(id)]), FINISH]);
    expect(lanesOf(bars).height).toBe(2);
  });

  test("steps that overlap are neighbours", () => {
    const { bars } = timelineOf([START, step("a"), step("b"), stepped("a"), stepped("b"), FINISH]);
    expect(outline(bars)).toEqual(["run r1 1-6 done", "  step a 2-4 done", "  step b 3-5 done"]);
    expect([...lanesOf(bars).lines]).toEqual([0, 1, 2]);
  });

  test("a subagent is inside the call that began it, and its messages are inside the subagent", () => {
    const subagents = ownStreams().find(({ scenario }) => scenario === "subagents");
    const events = subagents?.events.map(({ payload }) => JSON.parse(payload)) ?? [];
    expect(outline(timelineOf(events).bars)).toEqual([
      "run run-1 1-16 done",
      "  tool task 2-15 done",
      "    subagent searcher 3-13 done",
      "    subagent writer 4-14 failed",
      "      text  5-11 done",
      "      text  6-12 done",
    ]);
  });

  test("the messages of reasoning are parts of its one bar", () => {
    const { bars } = timelineOf([
      START,
      { type: "REASONING_START", messageId: "x" },
      { type: "REASONING_MESSAGE_START", messageId: "x1", role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "x1", delta: "hm" },
      { type: "REASONING_MESSAGE_END", messageId: "x1" },
      { type: "REASONING_MESSAGE_START", messageId: "x2", role: "reasoning" },
      { type: "REASONING_MESSAGE_END", messageId: "x2" },
      { type: "REASONING_END", messageId: "x" },
      FINISH,
    ]);
    expect(outline(bars)).toEqual(["run r1 1-9 done", "  reasoning  2-8 done"]);
    expect(bars[1]?.rows).toBe(7);
  });

  test("chunks make a bar that the next other event ends", () => {
    const { bars } = timelineOf([
      START,
      { type: "TEXT_MESSAGE_CHUNK", messageId: "m1", delta: "a" },
      { type: "TEXT_MESSAGE_CHUNK", delta: "b" },
      { type: "STATE_SNAPSHOT", snapshot: {} },
      { type: "TEXT_MESSAGE_CHUNK", messageId: "m2", delta: "c" },
      FINISH,
    ]);
    expect(outline(bars)).toEqual(["run r1 1-6 done", "  text  2-3 done", "  text  5-5 done"]);
  });

  test("a run that another one follows was cut, and so was what it had open", () => {
    const { bars } = timelineOf([START, call("a"), { ...START, runId: "r2" }]);
    expect(outline(bars)).toEqual(["run r1 1-2 cut", "  tool tool_a 2-2 cut", "run r2 3-3 open"]);
  });

  test("a failed run is failed, and a fragment without START begins a bar", () => {
    const { bars } = timelineOf([
      START,
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "…" },
      { type: "RUN_ERROR", message: "no" },
    ]);
    expect(outline(bars)).toEqual(["run r1 1-3 failed", "  text  2-2 cut"]);
    expect(bars[1]?.hasStart).toBe(false);
  });

  test("unknown types, broken payloads and dropped payloads are marks", () => {
    const timeline = new Timeline();
    const numbers = { seq: 1, lastSeq: 1, atMs: 1, endMs: 1, storedMs: 1, count: 1, bytes: 1 };
    const row: TimedRow = { ...numbers, type: "USAGE_METADATA", payload: "{}" };
    timeline.add(row);
    timeline.add({ ...row, seq: 2, lastSeq: 2, type: "RUN_STARTED", payload: "{broken" });
    timeline.add({ ...row, seq: 3, lastSeq: 3, type: "RUN_STARTED", payload: undefined });
    expect(timeline.bars).toEqual([]);
    expect(timeline.marks.map(({ category }) => category)).toEqual(["unknown", "run", "run"]);
  });
});

describe("waits", () => {
  const user = (seq: number, atMs: number, sentMs?: number) => ({
    seq,
    type: "user",
    atMs,
    storedMs: atMs,
    sentMs,
  });

  test("a message waits for the run that claimed it", () => {
    const claimed = { metadata: { session: { consumed: { last: 2 } } } };
    const { bars } = timelineOf([START, FINISH, { ...START, runId: "r2", ...claimed }]);
    const waits = waitsOf(bars, [user(1, 500), user(2, 1_500), user(3, 1_600)], { nowMs: 9_000 });
    expect(waits.map(({ seq, endMs, run }) => [seq, endMs, run?.name])).toEqual([
      [1, 3_000, "r2"],
      [2, 3_000, "r2"],
      [3, 9_000, undefined],
    ]);
  });

  test("without claims, the next run takes every message", () => {
    const { bars } = timelineOf([START, FINISH]);
    const waits = waitsOf(bars, [user(1, 400, 150), user(2, 1_500)], { nowMs: 9_000 });
    expect(waits.map(({ seq, startMs, endMs, run }) => [seq, startMs, endMs, run?.name])).toEqual([
      [1, 150, 1_000, "r1"],
      [2, 1_500, 9_000, undefined],
    ]);
  });

  test("an interrupt waits until the next run", () => {
    const outcome = { type: "interrupt", interrupts: [{ id: "i", reason: "approve" }] };
    const { bars } = timelineOf([
      START,
      { ...FINISH, outcome },
      { ...START, runId: "r2", at: 50_000 },
    ]);
    expect(bars[0]?.state).toBe("interrupted");
    expect(waitsOf(bars, [], { nowMs: 60_000 })).toMatchObject([
      { kind: "interrupt", seq: 2, startMs: 2_000, endMs: 50_000, reasons: ["approve"] },
    ]);
  });
});

test("a timeline of 100,000 rows is made row by row, and laid out, without a delay", () => {
  const ids = Array.from({ length: 20_000 }, (_, index) => String(index));
  const rows = ids.flatMap((id) => [call(id), called(id), result(id), step(id), stepped(id)]);
  const timeline = timelineOf([START, ...rows, FINISH]);
  expect(timeline.bars.length).toBe(40_001);
  expect(lanesOf(timeline.bars).height).toBe(2);
}); // About 0.3 s; a step that looks at all earlier rows takes minutes.
