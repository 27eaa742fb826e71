/**
 * A stored patch is usable when the schema of AG-UI 1.0 accepts its event, and no move goes into itself.
 * Method: fields are drawn from few values, right and wrong ones, so that most patches have one fault.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { lookup } from "@session-ledger/agui/catalogue";
import { isUsable } from "@session-ledger/agui/canonical/usable";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { CURRENT } from "@session-ledger/agui/schemas";
import { properties } from "../../../test/support/random.ts";

const pointer = fc.constantFrom<unknown>(
  "",
  "/",
  "/a",
  "/a/b",
  "/a~1b",
  "/a/b/c",
  "a",
  "/~",
  "/~2",
  1,
  null,
);
const operation = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record(
      {
        op: fc.constantFrom<unknown>(
          "add",
          "remove",
          "replace",
          "move",
          "copy",
          "test",
          "Add",
          null,
        ),
        path: pointer,
        from: pointer,
        value: fc.constantFrom<unknown>(0, null, "text", {}, []),
        more: fc.boolean(),
      },
      { requiredKeys: ["op", "path"] },
    ),
  },
  { weight: 1, arbitrary: fc.constantFrom<unknown>(null, "remove", 1, [], {}) },
);
const patch = fc.oneof(
  { weight: 9, arbitrary: fc.array(operation, { maxLength: 3 }) },
  { weight: 1, arbitrary: fc.constantFrom<unknown>(undefined, null, {}, "[]") },
);

const movesIntoItself = (list: unknown): boolean =>
  Array.isArray(list) &&
  list.some(
    (one) =>
      isObject(one) &&
      one["op"] === "move" &&
      String(one["path"]).startsWith(`${String(one["from"])}/`),
  );

test.each([
  ["STATE_DELTA", "delta", {}],
  ["ACTIVITY_DELTA", "patch", { messageId: "m", activityType: "a" }],
] as const)("a %s is usable when the schema accepts its patch", (type, field, more) => {
  const [entry, schema] = [lookup(type), CURRENT.get(type)];
  if (entry === undefined || schema === undefined) throw new Error(`no schema of ${type}`);
  let usable = 0;
  fc.assert(
    fc.property(patch, (drawn) => {
      const event: JsonObject = { type, ...more, [field]: drawn };
      const expected = schema.safeParse(event).success && !movesIntoItself(drawn);
      expect(isUsable(entry, event)).toBe(expected);
      if (expected) usable += 1;
    }),
    properties({ runs: 3_000 }),
  );
  expect(usable).toBeGreaterThan(100);
});
