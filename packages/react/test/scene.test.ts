import { describe, expect, test } from "vitest";
import { Axis } from "../src/model/axis.ts";
import { SessionLog } from "../src/model/log.ts";
import type { Row } from "../src/model/source.ts";
import { Entries, FilteredRows, NO_FILTER } from "../src/model/row-filter.ts";
import {
  eventAt,
  hitAt,
  clamped,
  niceStep,
  placeOfEvent,
  sceneOf,
  ticksIn,
  wholeOf,
  zoomed,
} from "../src/model/scene.ts";
import { Timeline } from "../src/model/timeline.ts";

const HOUR_MS = 3_600_000;

function row(seq: number, atMs: number, event: { type: string; [field: string]: unknown }): Row {
  const { count: given, ...rest } = event;
  const count = typeof given === "number" ? given : 1;
  const payload = JSON.stringify(rest);
  const times = { atMs, endMs: atMs + count - 1, storedMs: atMs, recordedMs: undefined };
  const numbers = { seq, lastSeq: seq + count - 1, count, bytes: payload.length };
  const about = { runId: seq < 100 ? "r1" : "r2", fragments: undefined, isConformant: true };
  return { ...numbers, ...times, ...about, type: event.type, payload };
}

/** Two runs of about two seconds, eight hours apart. */
const ROWS: readonly Row[] = [
  row(1, 0, { type: "RUN_STARTED", runId: "r1" }),
  row(2, 500, { type: "TEXT_MESSAGE_START", messageId: "m" }),
  row(3, 600, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hello", count: 50 }),
  row(53, 1_000, { type: "TEXT_MESSAGE_END", messageId: "m" }),
  row(54, 2_000, { type: "RUN_FINISHED", runId: "r1" }),
  row(100, 8 * HOUR_MS, { type: "RUN_STARTED", runId: "r2" }),
  row(101, 8 * HOUR_MS + 1_500, { type: "STATE_SNAPSHOT", snapshot: { secret: "Needle" } }),
  row(102, 8 * HOUR_MS + 2_000, { type: "RUN_FINISHED", runId: "r2" }),
];

function scene(by: "time" | "events", folds = true) {
  const timeline = new Timeline();
  for (const one of ROWS) timeline.add(one);
  const { bars, marks, span, lastSeq } = timeline;
  return sceneOf({ bars, marks, span, lastSeq, waits: [] }, { by, folds, nowMs: 9 * HOUR_MS });
}

describe("scene", () => {
  test("a night between two runs is folded, and the runs keep their lengths", () => {
    const { axis, starts, ends } = scene("time");
    expect(axis.folds).toMatchObject([{ from: 2_000, to: 8 * HOUR_MS }]);
    expect(axis.length).toBeLessThan(10_000);
    expect((ends[2] ?? 0) - (starts[2] ?? 0)).toBe(2_000);
    expect(scene("time", false).axis.length).toBe(8 * HOUR_MS + 2_000);
  });

  test("on the axis of events a bar is as long as its events are many", () => {
    const { starts, ends } = scene("events");
    expect([starts[1], ends[1]]).toEqual([1, 53]);
  });

  test("a zoom keeps the place under the pointer and stays inside the whole", () => {
    const drawn = scene("time");
    const whole = wholeOf(drawn);
    const near = zoomed(drawn, whole, { at: 1_000, factor: 0.1 });
    expect(near.to - near.from).toBeCloseTo((whole.to - whole.from) / 10);
    expect((1_000 - near.from) / (near.to - near.from)).toBeCloseTo(
      (1_000 - whole.from) / (whole.to - whole.from),
    );
    expect(zoomed(drawn, near, { at: near.from, factor: 1_000 })).toEqual(whole);
    expect(clamped(drawn, { from: -5_000, to: -4_000 }).from).toBe(whole.from);
  });

  test("a press finds the bar on its line, also next to a bar that is too small to see", () => {
    const drawn = scene("time");
    const line = drawn.lines[1] ?? 0;
    expect(hitAt(drawn, { place: 700, line, reach: 10 })).toEqual({ kind: "bar", at: 1 });
    expect(hitAt(drawn, { place: 1_005, line, reach: 10 })).toEqual({ kind: "bar", at: 1 });
    expect(hitAt(drawn, { place: 1_500, line, reach: 10 })).toBeUndefined();
    const mark = { place: drawn.markPlaces[0] ?? 0, line: drawn.marksLine, reach: 1 };
    expect(hitAt(drawn, mark)).toEqual({ kind: "mark", at: 0 });
    expect(hitAt(drawn, { place: 700, line: -1, reach: 10 })).toBeUndefined();
  });

  test("the events of a merged row share its stretch", () => {
    const drawn = scene("time");
    expect(placeOfEvent(drawn, { seq: 3, rows: ROWS })).toBe(600);
    expect(placeOfEvent(drawn, { seq: 52, rows: ROWS })).toBe(649);
    expect(eventAt(drawn, { place: 650, rows: ROWS })).toBe(3);
    expect(eventAt(drawn, { place: 999_999, rows: ROWS })).toBe(102);
    expect(eventAt(scene("events"), { place: 9, rows: ROWS })).toBe(10);
  });

  test("ticks are round, ascend and leave out the folded part", () => {
    const drawn = scene("time");
    const { step, ticks } = ticksIn(drawn, wholeOf(drawn), 12);
    expect(step).toBe(500);
    expect(ticks.length).toBeGreaterThan(5);
    for (const { value } of ticks) {
      expect(value % step).toBe(0);
      expect(value <= 2_000 || value >= 8 * HOUR_MS).toBe(true);
    }
    expect(ticks.map(({ place }) => place)).toEqual(
      ticks.map(({ place }) => place).toSorted((a, b) => a - b),
    );
    expect([niceStep(700, "time"), niceStep(61_000, "time"), niceStep(0.3, "events")]).toEqual([
      1_000, 120_000, 1,
    ]);
  });

  test("an axis of nothing has places too", () => {
    const axis = Axis.folded([]);
    expect([axis.length, axis.place(5)]).toEqual([0, 5]);
  });
});

/** A log that holds these rows and reads nothing. */
function logOf(rows: readonly Row[]): SessionLog {
  const log = Object.create(SessionLog.prototype);
  return Object.defineProperties(log, { rows: { get: () => rows }, generation: { value: 0 } });
}

describe("filtered rows", () => {
  const found = (rows: readonly Row[]): readonly number[] => rows.map(({ seq }) => seq);

  test("are those of the type, of the run and with the text", () => {
    const log = logOf(ROWS);
    const all = new FilteredRows(log, NO_FILTER).rows();
    expect(all).toBe(ROWS);
    const finished = new FilteredRows(log, { ...NO_FILTER, type: "RUN_FINISHED" }).rows();
    expect(found(finished)).toEqual([54, 102]);
    const run = new FilteredRows(log, { ...NO_FILTER, runId: "r2" }).rows();
    expect(found(run)).toEqual([100, 101, 102]);
    expect(found(new FilteredRows(log, { ...NO_FILTER, text: "needle" }).rows())).toEqual([101]);
    expect(found(new FilteredRows(log, { ...NO_FILTER, text: "_finish" }).rows())).toEqual([
      54, 102,
    ]);
  });

  test("grow with the log, and begin again when rows come into its middle", () => {
    const rows = [...ROWS.slice(0, 2), ...ROWS.slice(5)];
    const filtered = new FilteredRows(logOf(rows), { ...NO_FILTER, text: "messageid" });
    expect(found(filtered.rows())).toEqual([2]);
    rows.splice(2, 0, ...ROWS.slice(2, 5));
    expect(found(filtered.rows())).toEqual([2, 3, 53]);
    rows.push({ ...row(103, 0, { type: "RAW", event: "messageId" }), payload: undefined });
    expect([found(filtered.rows()), filtered.unread]).toEqual([[2, 3, 53], 1]);
  });

  test("are lines of rows, or of their events", () => {
    const lines = new Entries(ROWS, { isRaw: false });
    expect([lines.length, lines.at(2)?.seq, lines.indexOf(30), lines.indexOf(0)]).toEqual([
      8, 3, 2, -1,
    ]);
    const events = new Entries(ROWS, { isRaw: true });
    expect(events.length).toBe(57);
    expect([events.at(2)?.seq, events.at(51)?.seq, events.at(52)?.seq]).toEqual([3, 52, 53]);
    expect([events.at(51)?.row.seq, events.indexOf(52), events.indexOf(101)]).toEqual([3, 51, 55]);
    expect([events.at(57), events.indexOf(80)]).toEqual([undefined, 53]);
  });
});
