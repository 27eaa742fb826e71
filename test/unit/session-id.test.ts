import { describe, expect, test } from "vitest";
import { checkSessionId } from "../../src/contract/checks.ts";

describe("a session id", () => {
  test("that is empty is refused in the words that existing clients expect", () => {
    expect(checkSessionId("")).toEqual({
      field: "session_id",
      description: "session_id is required",
    });
    expect(checkSessionId("", "id")).toEqual({ field: "id", description: "id is required" });
  });

  test.each(["s1", "A.b_c:d-9", "...", ".a", "-", "x".repeat(128)])("may be %j", (id) => {
    expect(checkSessionId(id)).toBeUndefined();
  });

  test.each([".", "..", "a b", "a/b", "é", "s1\n", "s\0", "x".repeat(129), "%2e"])(
    "may not be %j",
    (id) => {
      expect(checkSessionId(id)?.field).toBe("session_id");
    },
  );
});
