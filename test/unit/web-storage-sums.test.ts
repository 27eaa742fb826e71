/** The sums of pages, added up and put in order for the page. */
import { expect, test } from "vitest";
import {
  added,
  savedOf,
  sortedBy,
  totalOf,
  type TypeSum,
} from "../../web/src/model/storage-sums.ts";

const sum = (type: string | undefined, bytes: number, more: Partial<TypeSum> = {}): TypeSum => ({
  stream: "events",
  ...(type === undefined ? {} : { event_type: type }),
  rows: 1,
  raw_events: 2,
  bytes,
  raw_bytes: 2 * bytes,
  ...more,
});

test("pages add up by stream and type", () => {
  const first = [sum("A", 10), sum(undefined, 1), sum("A", 5, { stream: "messages" })];
  const second = [sum("B", 3), sum("A", 4), sum(undefined, 2)];
  expect(added(first, second)).toEqual([
    sum("A", 14, { rows: 2, raw_events: 4 }),
    sum(undefined, 3, { rows: 2, raw_events: 4 }),
    sum("A", 5, { stream: "messages" }),
    sum("B", 3),
  ]);
  expect(totalOf(added(first, second))).toEqual(totalOf([...first, ...second]));
  expect(totalOf([])).toEqual({ rows: 0, raw_events: 0, bytes: 0, raw_bytes: 0 });
});

test("what is saved is a share of the bytes without compression", () => {
  expect(savedOf({ bytes: 25, raw_bytes: 100 })).toBe(0.75);
  expect(savedOf({ bytes: 110, raw_bytes: 100 })).toBeCloseTo(-0.1);
  expect(savedOf({ bytes: 0, raw_bytes: 0 })).toBe(0);
});

test("numbers descend and names ascend, and both turn around", () => {
  const sums = [sum("B", 1), sum(undefined, 5), sum("A", 3, { raw_bytes: 3 })];
  const names = (list: readonly TypeSum[]) => list.map(({ event_type: name }) => name ?? "others");
  expect(names(sortedBy(sums, "bytes", false))).toEqual(["others", "A", "B"]);
  expect(names(sortedBy(sums, "bytes", true))).toEqual(["B", "A", "others"]);
  expect(names(sortedBy(sums, "event_type", false))).toEqual(["A", "B", "others"]);
  expect(names(sortedBy(sums, "event_type", true))).toEqual(["others", "B", "A"]);
  expect(names(sortedBy(sums, "saved", false)).at(-1)).toBe("A");
});
