import { describe, expect, test } from "vitest";
import { Compressor, encodeFragments } from "@session-ledger/compressor/index";
import { LoggedRow, type Row } from "../src/model/source.ts";
import { Patches } from "../src/model/versions.ts";
import { eventPayload, eventsOf, previewOf } from "../src/session/event-text.ts";

/** The row that the service stores for these fragments. */
function merged(deltas: readonly string[]): Row {
  const compressor = new Compressor();
  deltas.forEach((delta, index) => {
    const event = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta, timestamp: 100 + index };
    const times = { createdAtMicros: BigInt(100 + index) * 1_000n };
    compressor.push({ eventType: event.type, payload: JSON.stringify(event), ...times }, 0);
  });
  const row = compressor.flush();
  if (row?.fragments === undefined) throw new Error("nothing was merged");
  const numbers = { seq: 7, lastSeq: 6 + deltas.length, count: deltas.length, bytes: 1 };
  const times = { atMs: 100, endMs: 99 + deltas.length, storedMs: 200, recordedMs: undefined };
  const { payload } = row;
  const fragments = encodeFragments(row.fragments);
  const about = { type: "TEXT_MESSAGE_CONTENT", runId: "r", isConformant: true };
  return { ...numbers, ...times, ...about, payload, fragments };
}

describe("the events of a row", () => {
  const row = merged(["Hel", "lo ", "😀"]);

  test("come with their own text, number and time", () => {
    const events = eventsOf(row, { after: 6, max: 10 });
    expect(events.map(({ seq, atMs }) => [seq, atMs])).toEqual([
      [7, 100],
      [8, 101],
      [9, 102],
    ]);
    expect(events.map(({ payload }) => previewOf(row.type, payload ?? ""))).toEqual([
      "Hel",
      "lo ",
      "😀",
    ]);
    expect(eventsOf(row, { after: 7, max: 1 })).toEqual(events.slice(1, 2));
    expect(eventPayload(row, 9)).toEqual(events[2]);
  });

  test("are the row itself where it was not merged, and nothing where its payload is dropped", () => {
    const whole: Row = { ...row, count: 1, lastSeq: 7, fragments: undefined };
    expect(eventPayload(whole, 7)).toEqual({ seq: 7, payload: row.payload, atMs: 100 });
    expect(eventsOf({ ...row, payload: undefined }, { after: 6, max: 10 })).toEqual([]);
  });
});

test.each([
  ["TOOL_CALL_START", { toolCallId: "c", toolCallName: "search" }, "search"],
  ["TOOL_CALL_RESULT", { toolCallId: "c", content: "found" }, "found"],
  ["STATE_DELTA", { delta: [{ op: "remove", path: "/a" }] }, '[{"op":"remove","path":"/a"}]'],
  ["TEXT_MESSAGE_END", { messageId: "m" }, "m"],
  ["RUN_FINISHED", { runId: "r", outcome: null }, "r"],
  ["USAGE", { tokens: 3 }, '{"tokens":3}'],
])("a line of %s shows the important field", (type, event, expected) => {
  expect(previewOf(type, JSON.stringify(event))).toBe(expected);
});

test("a line of a payload that is no JSON has its text", () => {
  expect(previewOf("RAW", "{broken")).toBe("{broken");
});

describe("the changes of a state", () => {
  const state = new Patches();
  state.set(2, { n: 0 });
  state.patch(5, [{ op: "replace", path: "/n", value: 1 }], { n: 1 });
  state.patch(9, [{ op: "replace", path: "/n", value: 2 }], { n: 2 });
  state.set(12, { n: 3 });

  test("have the numbers of their neighbours", () => {
    const around = (seq: number) => Object.values(state.around(seq));
    expect(around(1)).toEqual([undefined, 2]);
    expect(around(2)).toEqual([2, 5]);
    expect(around(8)).toEqual([5, 9]);
    expect(around(11)).toEqual([9, 12]);
    expect(around(40)).toEqual([12, undefined]);
    expect(Object.values(new Patches().around(3))).toEqual([undefined, undefined]);
  });

  test("make a state and the one before it once", () => {
    const [after, before] = [state.at(10), state.at(8)];
    expect([after, before]).toEqual([{ n: 2 }, { n: 1 }]);
    expect(state.at(9)).toBe(after);
    expect(state.at(8)).toBe(before);
  });
});

test("a row is no AG-UI event when the service says so", () => {
  const item = {
    id: "01900000-0000-7000-8000-000000000000",
    seq: 1,
    event_type: "CUSTOM",
    payload: "{}",
    created_at: "2026-11-26T09:00:00.000000Z",
    event_count: 1,
  };
  expect(new LoggedRow(item).isConformant).toBe(true);
  expect(new LoggedRow({ ...item, nonconformant: true }).isConformant).toBe(false);
});
