import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createRedactor } from "@session-ledger/agui/redaction/redactor";
import { properties } from "../../../test/support/random.ts";

function redacting(keys: readonly string[] = ["password", "apiKey"]) {
  const found: string[] = [];
  return { ...createRedactor({ secrets: [], keys }, (kind) => found.push(kind)), found };
}

describe("members by name", () => {
  test("lose their value at any depth and in any spelling of their name, and nothing else changes", () => {
    const { payload, found } = redacting();
    const text = (secret: string, number: string): string =>
      `{ "a":1.0,"Password" : ${secret},"b":[{"api_key":${number}, "n":1e5}],"passwords":"x","c":{"pass\\u0077ord":${secret}} }`;
    expect(payload(text('"hunter2"', "17"))).toBe(text('"***"', '"***"'));
    expect(payload(text('{"deep":["password"]}', "[1,2]"))).toBe(text('"***"', '"***"'));
    expect(found).toEqual(Array.from({ length: 6 }, () => "key"));
  });

  test("inside another one disappear with it, and count once", () => {
    const { payload, found } = redacting();
    expect(payload('{"apiKey":{"password":"a","x":1},"y":2}')).toBe('{"apiKey":"***","y":2}');
    expect(found).toEqual(["key"]);
  });

  test("lose their value in a patch with their path", () => {
    const { payload } = redacting();
    const delta = (value: string): string =>
      `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/user/api~0key","value":"x"},` +
      `{"value":${value},"path":"/user/password","op":"replace"},{"op":"add","path":"/apiKey/0","value":${value}},` +
      `{"op":"remove","path":"/password"},{"path":"/password","value":"no patch"}]}`;
    expect(payload(delta('{"a":["b"]}'))).toBe(delta('"***"'));
  });

  test("lose their value in a message of JSON, and not in other text", () => {
    const { text } = redacting();
    expect(text('{"password":"a"}')).toBe('{"password":"***"}');
    expect(text(' [{"password":"a"}]')).toBe(' [{"password":"***"}]');
    for (const other of ['say "password":"a"', '{"password":"a"', "{}{}", ""])
      expect(text(other)).toBe(other);
  });

  test.each([
    "{",
    "[",
    '{"a":',
    '{"password"',
    '{"password":',
    '{"password":"',
    '{"\\u12":1}',
    "}]",
  ])("in text that is not JSON cause no error: %s", (text) =>
    expect(() => redacting().payload(text)).not.toThrow(),
  );

  test("leave all other JSON values as they were", () => {
    const names = fc.constantFrom("password", "a", "api-key", "API_KEY", "b", "op", "x");
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        { depthSize: "small" },
        fc.string({ unit: "binary" }),
        fc.integer(),
        fc.boolean(),
        fc.constant(null),
        fc.array(tie("any"), { maxLength: 3 }),
        fc.dictionary(names, tie("any"), { maxKeys: 3 }),
      ),
    })).any;
    const without = (of: unknown): unknown => {
      if (Array.isArray(of)) return of.map(without);
      if (typeof of !== "object" || of === null) return of;
      return Object.fromEntries(
        Object.entries(of).map(([key, inside]) => {
          const isCut = /^(password|api[_-]?key)$/i.test(key) && inside !== null;
          return [key, isCut ? "***" : without(inside)];
        }),
      );
    };
    fc.assert(
      fc.property(fc.dictionary(names, value), (object) => {
        const plain: unknown = JSON.parse(JSON.stringify(object));
        const redacted = redacting().payload(JSON.stringify(object, undefined, 1));
        expect(JSON.parse(redacted)).toEqual(without(plain));
      }),
      properties({ runs: 1_000 }),
    );
  });
});
