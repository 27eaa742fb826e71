/**
 * The timeline of any log is whole and drawable: every row is in one bar or is one mark, a bar is
 * inside its parent, and no two bars overlap on a line, neither in time nor in numbers.
 *
 * Method: random events in any order, and legal ones, get times that mostly go forward, and some of
 * the fragments stand for several events. Each row has a random weight as its bytes, so that a row
 * that is counted twice, or instead of another, changes the sum. Everything is checked after the
 * last row and after a row in the middle, as a live tail shows it.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { isCompressible } from "@session-ledger/agui/catalogue";
import { Axis } from "../src/model/axis.ts";
import type { Bar, TimedRow } from "../src/model/bars.ts";
import { lanesOf } from "../src/model/lanes.ts";
import { Timeline } from "../src/model/timeline.ts";
import { anyEvents, type Fields, legalEvents } from "../../../test/support/agui-drawn.ts";
import { properties } from "../../../test/support/random.ts";

interface Timing {
  readonly stepMs: number;
  readonly lengthMs: number;
  readonly count: number;
  readonly weight: number;
}

const timing: fc.Arbitrary<Timing> = fc.record({
  stepMs: fc.oneof(fc.constantFrom(0, 0, 1, 700), fc.integer({ min: -50, max: 90_000 })),
  lengthMs: fc.nat({ max: 300 }),
  count: fc.integer({ min: 1, max: 4 }),
  weight: fc.nat({ max: 1_000_000_000 }),
});

function rowsOf(events: readonly Fields[], timings: readonly Timing[]): readonly TimedRow[] {
  let seq = 1;
  let atMs = 1_770_000_000_000;
  return events.map((event, index) => {
    const type = String(event["type"]);
    const { stepMs, lengthMs, count, weight } = timings[index % timings.length] ?? NEXT;
    const own = isCompressible(type) ? count : 1;
    atMs += stepMs;
    const endMs = atMs + (own > 1 ? lengthMs : 0);
    const payload = JSON.stringify(event);
    const numbers = { seq, lastSeq: seq + own - 1, count: own, bytes: weight };
    const row = { ...numbers, type, atMs, endMs, storedMs: atMs, payload };
    seq += own;
    return row;
  });
}

const NEXT: Timing = { stepMs: 1, lengthMs: 0, count: 1, weight: 1 };

function faultsOf(timeline: Timeline, rows: readonly TimedRow[]): readonly string[] {
  return [
    ...faultsOfSums(timeline, rows),
    ...faultsOfNesting(timeline),
    ...faultsOfLines(timeline),
  ];
}

function faultsOfSums({ bars, marks }: Timeline, rows: readonly TimedRow[]): readonly string[] {
  const weights = new Map(rows.map(({ seq, bytes }) => [seq, bytes]));
  const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);
  const sums = {
    rows: sum(bars.map((bar) => bar.rows)) + marks.length - rows.length,
    events:
      sum([...bars.map(({ events }) => events), ...marks.map(({ count }) => count)]) -
      sum(rows.map(({ count }) => count)),
    bytes:
      sum([...bars.map(({ bytes }) => bytes), ...marks.map(({ seq }) => weights.get(seq) ?? 0)]) -
      sum(rows.map(({ bytes }) => bytes)),
  };
  return Object.entries(sums).flatMap(([name, off]) =>
    off === 0 ? [] : [`${off} ${name} too many`],
  );
}

/** Of an open bar, the end so far is that of the log. */
function endsIn({ span, lastSeq }: Timeline) {
  return ({ state, endMs, toSeq }: Bar) =>
    state === "open" ? { ms: span.endMs, seq: lastSeq } : { ms: endMs, seq: toSeq };
}

function faultsOfNesting(timeline: Timeline): readonly string[] {
  const { bars, marks, span } = timeline;
  const endOf = endsIn(timeline);
  const isInside = (bar: Bar): boolean => {
    const { parent } = bar;
    if (bar.endMs < bar.startMs || bar.startMs < (parent?.startMs ?? span.startMs)) return false;
    if (parent === undefined) return true;
    const [own, outer] = [endOf(bar), endOf(parent)];
    const isLater =
      bar.fromSeq > parent.fromSeq && (parent.state === "open" || bar.state !== "open");
    return isLater && own.ms <= outer.ms && own.seq <= outer.seq;
  };
  return [
    ...bars.filter((bar) => !isInside(bar)).map(({ fromSeq }) => `bar ${fromSeq} is outside`),
    ...marks
      .filter(({ seq, parent }) => parent !== undefined && seq <= parent.fromSeq)
      .map(({ seq }) => `mark ${seq} is outside`),
  ];
}

function faultsOfLines(timeline: Timeline): readonly string[] {
  const { bars } = timeline;
  const { lines, height } = lanesOf(bars);
  const endOf = endsIn(timeline);
  const overlap = (one: Bar, other: Bar): boolean =>
    (one.startMs < endOf(other).ms && other.startMs < endOf(one).ms) ||
    (one.fromSeq <= endOf(other).seq && other.fromSeq <= endOf(one).seq);
  return bars.flatMap((bar, at) => {
    const line = lines[at] ?? -1;
    const above = bar.parent === undefined ? -1 : (lines[bars.indexOf(bar.parent)] ?? height);
    const others = bars.filter((_, index) => index < at && lines[index] === line);
    return [
      ...(line > above && line < height ? [] : [`bar ${bar.fromSeq} is on line ${line}`]),
      ...others.filter((other) => overlap(bar, other)).map(({ fromSeq }) => `${fromSeq} overlaps`),
    ];
  });
}

test.each([
  ["events in any order", anyEvents],
  ["legal events", legalEvents],
] as const)("a timeline of %s is whole, nested and without overlaps", (_, events) => {
  const timings = fc.array(timing, { minLength: 1, maxLength: 30 });
  fc.assert(
    fc.property(events, timings, fc.nat(), (drawn, times, pause) => {
      const rows = rowsOf(drawn, times);
      const timeline = new Timeline();
      const faults: string[] = [];
      rows.forEach((row, index) => {
        timeline.add(row);
        const soFar = index === pause % rows.length ? rows.slice(0, index + 1) : [];
        if (soFar.length > 0) faults.push(...faultsOf(timeline, soFar));
      });
      expect([...faults, ...faultsOf(timeline, rows)]).toEqual([]);
    }),
    properties({ runs: 2_000 }),
  );
});

test("an axis with folds keeps the order of all places, and leads back to them", () => {
  const stretch = fc
    .tuple(fc.nat({ max: 90_000_000 }), fc.nat({ max: 60_000 }))
    .map(([startMs, ms]) => ({ startMs, endMs: startMs + ms }));
  fc.assert(
    fc.property(fc.array(stretch, { minLength: 1, maxLength: 12 }), (stretches) => {
      const axis = Axis.folded(stretches);
      const places = stretches.flatMap(({ startMs, endMs }) => [
        startMs,
        (startMs + endMs) / 2,
        endMs,
      ]);
      const sorted = places.toSorted((a, b) => a - b);
      let before = -1e-6;
      for (const value of sorted) {
        const place = axis.place(value);
        expect(place).toBeGreaterThanOrEqual(before - 1e-6);
        expect(place).toBeLessThanOrEqual(axis.length + 1e-6);
        expect(axis.value(place)).toBeCloseTo(value, 3);
        before = place;
      }
      // Stretches keep their lengths; only what is between them is shorter.
      for (const { startMs, endMs } of stretches)
        expect(axis.place(endMs) - axis.place(startMs)).toBeCloseTo(endMs - startMs, 3);
    }),
    properties({ runs: 500 }),
  );
});
