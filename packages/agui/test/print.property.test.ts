/** Printing a value of somebody else's code: as JSON.stringify does, and never an error for a member. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { printJson } from "@session-ledger/agui/print";
import { JSON_DEPTH_MAX } from "@session-ledger/agui/payload";
import { outline } from "@session-ledger/agui/spans";
import { properties } from "../../../test/support/random.ts";

/** Values that JSON has, and those that JSON.stringify leaves out or changes. */
const plain = fc.oneof(
  fc.jsonValue({ maxDepth: 4 }),
  fc.constantFrom(undefined, Number.NaN, Symbol("s"), () => 1, new Date(0), new Date(Number.NaN)),
  fc.constantFrom(Object(1), Object("text"), new Map([[1, 2]]), new Error("e"), "\ud800"),
);

test("a BigInt next to any value changes nothing in the value", () => {
  fc.assert(
    fc.property(fc.array(plain), fc.dictionary(fc.string(), plain), (list, object) => {
      const text = JSON.stringify([list, object]);
      expect(printJson([list, object])).toEqual({ text, replaced: new Map() });
      expect(printJson([list, object, 1n])).toEqual({
        text: `${text.slice(0, -1)},1]`,
        replaced: new Map([["bigint", 1]]),
      });
    }),
    properties({ runs: 500 }),
  );
});

const { tree } = fc.letrec((tie) => ({
  tree: fc.oneof(
    { depthSize: "large" },
    plain,
    fc.bigInt(),
    fc.array(tie("tree"), { maxLength: 3 }),
    fc.dictionary(fc.string(), tie("tree"), { maxKeys: 3 }),
    tie("tree").map((value) => ({ toJSON: () => value })),
    fc.constant({ toJSON: () => thrown() }),
    tie("tree").map((value) =>
      Object.defineProperty({ value }, "bad", { get: thrown, enumerable: true }),
    ),
    fc.integer({ min: 1, max: 90 }).map((levels) => {
      let value: unknown = 1n;
      for (let level = 0; level < levels; level += 1) value = level % 2 === 0 ? [value] : { value };
      return value;
    }),
  ),
}));

test("any member is printed or replaced, within the depth", () => {
  fc.assert(
    fc.property(tree, (value) => {
      const { text = "" } = printJson({ value });
      expect(JSON.parse(text)).toBeTypeOf("object");
      expect(outline(text).depth).toBeLessThanOrEqual(JSON_DEPTH_MAX);
    }),
    properties({ runs: 1_000 }),
  );
});

test("a value that grows without end is refused", () => {
  const endless = { toJSON: () => ({ a: endless, b: endless, c: 1n }) };
  expect(() => printJson({ endless, id: 1n }, 10_000)).toThrow(RangeError);
});

test("a Proxy that throws is replaced as a member, and thrown as a whole", () => {
  const proxy = new Proxy({}, { ownKeys: thrown, get: () => undefined });
  expect(printJson({ proxy }).text).toBe('{"proxy":"[cannot be printed]"}');
  expect(() => printJson(proxy)).toThrow("of the agent");
});

function thrown(): never {
  throw new Error("of the agent");
}
