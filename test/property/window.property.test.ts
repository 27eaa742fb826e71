/**
 * Windows share their rows, and each is what a window that copies every row would be. That every watcher
 * gets every committed row once and in order is in live-watch.property.test.ts, with the whole live.ts.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  append,
  fill,
  hint,
  openWindow,
  type Row,
  take,
  type Window,
} from "../../src/live/window.ts";
import { properties } from "../support/random.ts";

const RUNS = properties({ runs: 2_000 });
const LIMITS = { rowsMax: 3, bytesMax: 40 };

/** What a window shows: all that may not change once it was made. */
function shown(window: Window) {
  const { floor, head, hintedHead, bytes } = window;
  return { floor, head, hintedHead, bytes, rows: window.shared.slice(window.start, window.end) };
}

/** The window that copies every row at every step, and is plainly right. */
function plainAppend(
  window: ReturnType<typeof shown>,
  added: readonly Row[],
): ReturnType<typeof shown> {
  const rows = [...window.rows];
  let { floor, head, hintedHead } = window;
  for (const row of added) {
    hintedHead = row.lastSeq > hintedHead ? row.lastSeq : hintedHead;
    if (row.firstSeq !== head + 1n) continue;
    rows.push(row);
    head = row.lastSeq;
  }
  const sum = () => rows.reduce((total, row) => total + row.bytes, 0);
  while (rows.length > LIMITS.rowsMax || sum() > LIMITS.bytesMax) {
    floor = rows.shift()?.lastSeq ?? floor;
  }
  return { floor, head, hintedHead, bytes: sum(), rows };
}

test("windows share their rows, and none shows rows of another", () => {
  const row = fc.record({
    skip: fc.bigInt({ min: -1n, max: 1n }),
    count: fc.bigInt({ min: 1n, max: 3n }),
    bytes: fc.integer({ min: 1, max: 50 }),
  });
  const step = fc.record({ from: fc.nat(), rows: fc.array(row, { maxLength: 5 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const windows: Window[] = [openWindow(7n)];
      const plain = windows.map(shown);
      for (const { from, rows } of steps) {
        const at = from % 3 === 0 ? from % windows.length : windows.length - 1; // Mostly the newest.
        let last = windows[at]?.head ?? 0n;
        const added = rows.map(({ skip, count, bytes }) => {
          const firstSeq = last + 1n + skip;
          last = firstSeq + count - 1n;
          return { firstSeq, lastSeq: last, bytes };
        });
        windows.push(append(windows[at] ?? openWindow(7n), added, LIMITS));
        plain.push(plainAppend(plain[at] ?? shown(openWindow(7n)), added));
      }
      expect(windows.map(shown)).toEqual(plain);
      for (const { shared, start, end, deadBytes } of windows) {
        expect(start <= end - start || shared.length === 0).toBe(true);
        expect(deadBytes <= LIMITS.bytesMax).toBe(true);
      }
    }),
    RUNS,
  );
});

test("erased rows in front of the window are skipped", () => {
  const asked = hint(openWindow(3n), 9n);
  const rows = [{ firstSeq: 7n, lastSeq: 9n, bytes: 1 }];
  const filled = fill(asked, asked, rows, LIMITS);
  expect(shown(filled)).toEqual({ floor: 6n, head: 9n, hintedHead: 9n, bytes: 1, rows });
  expect(take(filled, 3n, LIMITS)).toEqual({ kind: "page" });
});

test("a take stops at its limits, with at least one row", () => {
  const rows = [1n, 2n, 3n].map((seq) => ({ firstSeq: seq, lastSeq: seq, bytes: 10 }));
  const window = append(openWindow(0n), rows, LIMITS);
  const taken = (rowsMax: number, bytesMax: number) => {
    const answer = take(window, 0n, { rowsMax, bytesMax });
    return answer.kind === "rows" ? answer.rows.length : answer.kind;
  };
  expect([taken(2, 100), taken(9, 20), taken(9, 19), taken(9, 1), taken(9, 100)]).toEqual([
    2, 2, 1, 1, 3,
  ]);
});
