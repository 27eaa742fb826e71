import { expect, test } from "vitest";
import { MESSAGE_TYPES, checkMessageType } from "@session-ledger/agui/message-types";

test("the six documented types and lifecycle are message types", () => {
  expect(MESSAGE_TYPES).toEqual([
    "user",
    "assistant",
    "tool_use",
    "tool_result",
    "system",
    "error",
    "lifecycle",
  ]);
  for (const type of MESSAGE_TYPES) expect(checkMessageType(type)).toBeUndefined();
});

test("any other type is refused with the list of allowed ones", () => {
  for (const type of ["User", "tool", "RUN_STARTED", "user ", "toString"])
    expect(checkMessageType(type)).toEqual({
      field: "event_type",
      description:
        "event_type must be one of user, assistant, tool_use, tool_result, system, error, lifecycle",
    });
  expect(checkMessageType("")?.description).toBe("event_type is required");
});
