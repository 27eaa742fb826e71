/** The text of a message, for a runner that takes it in a turn. */
import { expect, test } from "vitest";
import { textOf } from "@session-ledger/runner/internal/user-messages";

const parts = [{ type: "text", text: "Look:" }, { type: "image", source: {} }, 1, { text: 2 }];

test.each([
  ["hi", "hi"],
  ["", ""],
  ["{hi}", "{hi}"],
  ["[1]", "[1]"],
  ['{"text":"hi"}', "hi"],
  ['{"text":1}', '{"text":1}'],
  ['{"messages":1}', '{"messages":1}'],
  ['{"messages":[],"resume":[]}', ""],
  [JSON.stringify({ messages: [{ content: "a" }, null, { content: parts }, {}] }), "a\nLook:"],
])("of %j is %j", (payload, text) => {
  expect(textOf({ payload })).toBe(text);
});
