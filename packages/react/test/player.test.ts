import { expect, test } from "vitest";
import { GAP_MS_MAX, PlayClock, type TimedRow } from "../src/model/player.ts";

function row(seq: number, atMs: number, { count = 1, endMs = atMs } = {}): TimedRow {
  return { seq, lastSeq: seq + count - 1, atMs, endMs };
}

test("a replay shows each event at its recorded time after the first one", () => {
  const clock = new PlayClock([row(1, 5_000), row(2, 5_100), row(3, 5_400)]);

  expect([1, 2, 3].map((seq) => clock.timeOf(seq))).toEqual([0, 100, 400]);
  expect([0, 99, 100, 399, 400, 9_999].map((ms) => clock.seqAt(ms))).toEqual([1, 1, 2, 2, 3, 3]);
  expect(clock.durationMs).toBe(400);
});

test("a replay spreads the merged events of a row over its time", () => {
  const clock = new PlayClock([row(1, 0), row(2, 10, { count: 11, endMs: 1_010 }), row(13, 1_020)]);

  expect(clock.timeOf(2)).toBe(10);
  expect(clock.timeOf(7)).toBe(510);
  expect(clock.timeOf(12)).toBe(1_010);
  expect(clock.seqAt(509)).toBe(6);
  expect(clock.seqAt(510)).toBe(7);
  expect(clock.seqAt(1_019)).toBe(12);
  expect(clock.seqAt(1_020)).toBe(13);
});

test("a replay shortens a long gap, also inside of a row", () => {
  const hour = 3_600_000;
  const rows = [row(1, 0), row(2, hour), row(3, hour, { count: 3, endMs: 2 * hour })];
  const clock = new PlayClock(rows);

  expect(clock.timeOf(2)).toBe(GAP_MS_MAX);
  expect(clock.timeOf(4)).toBe(2 * GAP_MS_MAX);
  expect(clock.durationMs).toBe(3 * GAP_MS_MAX);
});

test("a clock that stepped back takes no time from a replay", () => {
  const clock = new PlayClock([row(1, 1_000), row(2, 400), row(3, 1_100)]);

  expect([1, 2, 3].map((seq) => clock.timeOf(seq))).toEqual([0, 0, 100]);
  expect(clock.seqAt(0)).toBe(2);
});

test("every event shows at its own time when events of one moment are the last of it", () => {
  const rows = [
    row(1, 0),
    row(2, 7, { count: 40, endMs: 403 }),
    row(42, 500, { count: 2, endMs: 501 }),
  ];
  const clock = new PlayClock(rows);

  for (let seq = 1; seq <= 43; seq += 1) {
    expect(clock.seqAt(clock.timeOf(seq) + 1e-6), `event ${seq}`).toBe(seq);
  }
});

test("a replay of nothing has no time and no event", () => {
  const clock = new PlayClock([]);

  expect(clock.durationMs).toBe(0);
  expect(clock.timeOf(5)).toBe(0);
  expect(clock.seqAt(5)).toBe(0);
});
