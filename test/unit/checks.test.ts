import { describe, expect, test } from "vitest";
import { checkText } from "../../src/contract/checks.ts";

describe("a text", () => {
  test.each(["", "plain", "\u{1f600}", "\\ud800", "\u2028\ufffd"])(
    "of %j is stored as it is",
    (text) => {
      expect(checkText("payload", text)).toBeUndefined();
    },
  );

  // Bug: JSON can hold half a surrogate pair, which PostgreSQL refused, and the answer was a 500.
  test.each(["\ud800", "a\udc00b", "\udc00\ud800", "a\0b"])(
    "of %j is refused, with the name of its field",
    (text) => {
      expect(checkText("payload", text)).toMatchObject({ field: "payload" });
    },
  );
});
