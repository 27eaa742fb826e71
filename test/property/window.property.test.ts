/**
 * Every watcher gets every committed row after its cursor exactly once and in order, whatever the
 * interleaving of commits here and on another replica, late, lost and repeated hints, slow reads,
 * slow watchers, and evictions.
 *
 * Method: the table is an array, the replica one window, two watchers are cursors. fast-check picks
 * the steps; at the end a poll tells the true head, all come to rest, and what each watcher got must
 * equal the table from where it began.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  append,
  emptied,
  fill,
  hint,
  needsRead,
  openWindow,
  type Row,
  take,
  type Window,
} from "../../src/live/window.ts";
import { properties } from "../support/random.ts";

const STEPS = [
  "commitHere",
  "commitElsewhere",
  "publish",
  "publishAgain",
  "hint",
  "falseHint",
  "poll",
  "startRead",
  "endRead",
  "empty",
  "watch0",
  "watch1",
] as const;
type Step = (typeof STEPS)[number];

const REST = ["publish", "poll", "startRead", "endRead", "watch0", "watch1"] as const;

const RUNS = properties({ runs: 2_000 });
const LIMITS = { rowsMax: 3, bytesMax: 40 };
const PAGE_ROWS_MAX = 2;

class Model {
  readonly table: Row[] = [];
  readonly got: Row[][] = [[], []];
  readonly cursors = [0n, 0n];
  #window: Window = openWindow(0n);
  #published: Row[] = [];
  #hints: bigint[] = [];
  #read: { readonly asked: Window; readonly rows: readonly Row[] } | undefined;

  run(step: Step): void {
    switch (step) {
      case "commitHere":
        this.#published.push(this.#commit());
        return;
      case "commitElsewhere":
        this.#hints.push(this.#commit().lastSeq);
        return;
      case "publish": // A commit of this replica reaches its window later than the table.
        this.#window = append(this.#window, this.#published.splice(0, 1), LIMITS);
        return;
      case "publishAgain":
        this.#window = append(this.#window, this.table.slice(-2), LIMITS);
        return;
      case "hint":
        this.#window = hint(this.#window, this.#hints.pop() ?? 0n); // Newest first, the others may be lost.
        return;
      case "falseHint": // Of a commit that was never made.
        this.#window = hint(this.#window, this.#head() + 2n);
        return;
      case "poll":
        this.#window = hint(this.#window, this.#head());
        return;
      case "startRead":
        if (needsRead(this.#window)) {
          this.#read ??= { asked: this.#window, rows: this.#page(this.#window.head) };
        }
        return;
      case "endRead":
        if (this.#read === undefined) return;
        this.#window = fill(this.#window, this.#read.asked, this.#read.rows, LIMITS);
        this.#read = undefined;
        return;
      case "empty":
        this.#window = emptied(this.#window);
        return;
      case "watch0":
        return this.#watch(0);
      case "watch1":
        return this.#watch(1);
    }
  }

  get atRest(): boolean {
    return !needsRead(this.#window);
  }

  comeToRest(): void {
    for (let round = 0; round < 4 * this.table.length + 4; round += 1) {
      for (const step of REST) this.run(step);
    }
  }

  #head(): bigint {
    return this.table.at(-1)?.lastSeq ?? 0n;
  }

  #commit(): Row {
    const firstSeq = this.#head() + 1n;
    const eventCount = BigInt(1 + (this.table.length % 3)); // A compressed row takes several numbers.
    const bytes = 1 + ((this.table.length * 7) % 30);
    const row = { firstSeq, lastSeq: firstSeq + eventCount - 1n, bytes };
    this.table.push(row);
    return row;
  }

  #page(cursor: bigint): Row[] {
    return this.table.filter((row) => row.lastSeq > cursor).slice(0, PAGE_ROWS_MAX);
  }

  #watch(index: 0 | 1): void {
    const cursor = this.cursors[index] ?? 0n;
    const taken = take(this.#window, cursor, { rowsMax: index + 1, bytesMax: 1_000 });
    const rows =
      taken.kind === "wait" ? [] : taken.kind === "page" ? this.#page(cursor) : taken.rows;
    this.got[index]?.push(...rows);
    this.cursors[index] = rows.at(-1)?.lastSeq ?? cursor;
  }
}

test("every watcher gets every committed row once and in order", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...STEPS), { maxLength: 80, size: "max" }), (steps) => {
      const model = new Model();
      for (const step of steps) model.run(step);
      model.comeToRest();
      expect(model.atRest).toBe(true); // A hint that is false is not asked for ever.
      for (const got of model.got) expect(got).toEqual(model.table);
    }),
    RUNS,
  );
});

/** What a window shows: all that may not change once it was made. */
function shown(window: Window) {
  const { floor, head, known, bytes } = window;
  return { floor, head, known, bytes, rows: window.shared.slice(window.start, window.end) };
}

/** The window that copies every row at every step, and is plainly right. */
function plainAppend(
  window: ReturnType<typeof shown>,
  added: readonly Row[],
): ReturnType<typeof shown> {
  const rows = [...window.rows];
  let { floor, head, known } = window;
  for (const row of added) {
    known = row.lastSeq > known ? row.lastSeq : known;
    if (row.firstSeq !== head + 1n) continue;
    rows.push(row);
    head = row.lastSeq;
  }
  const sum = () => rows.reduce((total, row) => total + row.bytes, 0);
  while (rows.length > LIMITS.rowsMax || sum() > LIMITS.bytesMax) {
    floor = rows.shift()?.lastSeq ?? floor;
  }
  return { floor, head, known, bytes: sum(), rows };
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
  expect(shown(filled)).toEqual({ floor: 6n, head: 9n, known: 9n, bytes: 1, rows });
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
