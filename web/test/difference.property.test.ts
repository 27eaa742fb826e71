/** Whatever two lists are, the parts give both back, and no common list is longer. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { difference, wordsOf } from "../src/model/difference.ts";
import { properties } from "../../test/support/random.ts";

const list = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 12 });

/** The length of the longest common list, by trying everything. */
function longest(left: readonly string[], right: readonly string[]): number {
  const [first, ...rest] = left;
  if (first === undefined) return 0;
  const at = right.indexOf(first);
  const without = longest(rest, right);
  return at < 0 ? without : Math.max(without, 1 + longest(rest, right.slice(at + 1)));
}

test("the parts of two lists are both lists, and as much as possible is in both", () => {
  fc.assert(
    fc.property(list, list, (left, right) => {
      const parts = difference(left, right);
      expect(parts.flatMap((part) => part.left)).toEqual(left);
      expect(parts.flatMap((part) => part.right)).toEqual(right);
      const both = parts.filter((part) => part.in === "both");
      for (const part of both) expect(part.left).toEqual(part.right);
      expect(both.flatMap((part) => part.left)).toHaveLength(longest(left, right));
      for (const [at, part] of parts.entries()) {
        expect(part.in).not.toBe(parts[at - 1]?.in);
        expect(part.left.length + part.right.length).toBeGreaterThan(0);
        const other = { both: [], left: part.right, right: part.left }[part.in];
        expect(other).toEqual([]);
      }
    }),
    properties({ runs: 400 }),
  );
});

test("words are the whole text", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 200 }), (text) => {
      expect(wordsOf(text).join("")).toBe(text);
    }),
    properties({ runs: 400 }),
  );
});

test("two long texts without anything in common are compared at once", () => {
  const left = Array.from({ length: 30_000 }, (_, at) => `l${at}`);
  const right = Array.from({ length: 30_000 }, (_, at) => `r${at}`);
  const parts = difference(["same", ...left, "end"], ["same", ...right, "end"]);
  expect(parts.map((part) => [part.in, part.left.length, part.right.length])).toEqual([
    ["both", 1, 1],
    ["left", 30_000, 0],
    ["right", 0, 30_000],
    ["both", 1, 1],
  ]);
});
