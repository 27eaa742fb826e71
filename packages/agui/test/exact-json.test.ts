/** Numbers keep their spelling, and everything else is read as by JSON.parse. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { parseExact, plainNumber } from "@session-ledger/agui/exact-json";
import { isObject } from "@session-ledger/agui/json";
import { properties } from "../../../test/support/random.ts";

const NUMBERS = [
  "1000000000000000001",
  "-1000000000000000001",
  "1.10",
  "1.0",
  "-0",
  "-0.0",
  "1e3",
  "1E+3",
  "1e400",
  "-1e-400",
  "0.12345678901234567890",
  "12345678901234567.5",
];

test.each(NUMBERS)("%s is printed as it was spelled, wherever it stands", (number) => {
  const texts = [
    number,
    `[${number}]`,
    `{"a":${number}}`,
    `{"a":[1,${number},2],"b":{"c":${number}}}`,
    `{"a": [ ${number} , ${number} ]}`,
  ];
  for (const text of texts)
    expect(JSON.stringify(parseExact(text))).toBe(text.replaceAll(/ /g, ""));
  expect(isObject(parseExact(number))).toBe(false);
  expect(plainNumber(parseExact(number))).toBe(Number(number));
});

test.each(["1", "-1", "0", "1.5", "0.1", "100", "123456789012345", "0.3333333333333333"])(
  "%s is a number",
  (number) => {
    expect(parseExact(`[${number}]`)).toEqual([Number(number)]);
  },
);

test.each([
  '{"a":": 1.10"}',
  '["1000000000000000001"]',
  '{"1.10":1}',
  '[", -0"]',
  '{"a":"\\"[1.0"}',
])("a text with a number is a text: %s", (text) => {
  expect(parseExact(text)).toEqual(JSON.parse(text));
  expect(JSON.stringify(parseExact(text))).toBe(text);
});

test("refuses the same invalid JSON as JSON.parse", () => {
  for (const text of ["", "{", "01", "1.", '{"a":1.10', "[1e]"])
    expect(() => parseExact(text)).toThrow(SyntaxError);
});

test("any JSON is printed as it was", () => {
  const number = fc.oneof(
    fc.constantFrom(...NUMBERS),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
    fc.tuple(fc.maxSafeNat(), fc.nat({ max: 999 })).map((parts) => parts.join(".")),
    fc.bigInt().map(String),
  );
  const { json } = fc.letrec<{ json: string }>((tie) => ({
    json: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      number,
      fc.string({ unit: "binary" }).map((text) => JSON.stringify(text)),
      fc.constantFrom("null", "true", "{}", "[]"),
      fc.array(tie("json"), { maxLength: 4 }).map((items) => `[${items.join()}]`),
      fc
        .uniqueArray(fc.tuple(fc.string(), tie("json")), {
          maxLength: 4,
          selector: ([key]) => key,
          // Keys that are indexes come first in an object.
        })
        .map((all) => all.filter(([key]) => !/^\d+$/.test(key) && key !== "__proto__"))
        .map((all) => `{${all.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join()}}`),
    ),
  }));
  fc.assert(
    fc.property(json, (text) => {
      const value = parseExact(text);
      expect(JSON.stringify(value)).toBe(text);
    }),
    properties({ runs: 2_000 }),
  );
});
