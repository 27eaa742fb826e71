import { describe, expect, test } from "vitest";
import { JSON_DEPTH_MAX, readPayload } from "@session-ledger/agui/payload";

describe("a payload", () => {
  test.each([
    ["", "payload must be a JSON object, but is not JSON"],
    ["{", "payload must be a JSON object, but is not JSON"],
    ["{'a':1}", "payload must be a JSON object, but is not JSON"],
    ["\u{feff}{}", "payload must be a JSON object, but is not JSON"],
    ["null", "payload must be a JSON object"],
    ["[{}]", "payload must be a JSON object"],
    ['"{}"', "payload must be a JSON object"],
    ['{"a":1,"b":2,"a":1}', "payload.a must occur once, but occurs twice"],
    ['{"type":"x","t\\u0079pe":"x"}', "payload.type must occur once, but occurs twice"],
    ['{"__proto__":1,"__proto__":2}', "payload.__proto__ must occur once, but occurs twice"],
    ['{"\\n\\ud800":1,"\\n\\ud800":2}', 'payload."\\n\\ud800" must occur once'],
  ])("of %s is refused", (text, description) => {
    const read = readPayload(text);
    expect(read.ok ? "" : read.violation.description).toContain(description);
  });

  test("is not quoted in the error message", () => {
    const read = readPayload('{"secret":');
    expect(JSON.stringify(read)).not.toContain("secret");
  });

  test("may have a key twice below the top level", () => {
    expect(readPayload('{"value":{"a":1,"a":2}}').ok).toBe(true);
  });

  test(`has at most ${JSON_DEPTH_MAX} levels`, () => {
    const nested = (levels: number): string =>
      `{"a":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;
    expect(readPayload(nested(JSON_DEPTH_MAX)).ok).toBe(true);
    expect(readPayload(nested(JSON_DEPTH_MAX + 1))).toEqual({
      ok: false,
      violation: { field: "payload", description: "payload must be at most 64 levels deep" },
    });
    expect(readPayload(`{"a":"${"[".repeat(100)}"}`).ok).toBe(true); // Brackets in a string are text.
  });
});
