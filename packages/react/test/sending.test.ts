import { expect, test } from "vitest";
import { messagesOfRow } from "@session-ledger/agui/canonical/user-messages";
import { answering, payloadOf, SendKeys } from "../src/model/sending.ts";

test.each(["Hello", ' {"text":"other"}', '{"messages":[]}', "{not JSON", "[1]", "سلام {x}"])(
  "the conversation has exactly the text that a person typed: %s",
  (text) => {
    const spoken = messagesOfRow({
      id: "row",
      seq: 1n,
      eventType: "user",
      payload: payloadOf(text),
      sender: undefined,
      createdAtMicros: 0n,
      sentAtMicros: undefined,
    });

    expect(spoken.messages.map(({ content }) => content)).toEqual([text]);
  },
);

test("a text that is sent again before it is stored has the same key", () => {
  let made = 0;
  const keys = new SendKeys(() => `key-${(made += 1)}`);

  expect(keys.keyOf("Hello")).toBe("key-1");
  expect(keys.keyOf("Hello")).toBe("key-1");
  expect(keys.keyOf("Hello!")).toBe("key-2");
  keys.stored();
  expect(keys.keyOf("Hello!")).toBe("key-3");
});

test("each user message has its own key", () => {
  const keys = Array.from({ length: 100 }, () => new SendKeys().keyOf("Hello"));

  expect(new Set(keys).size).toBe(100);
});

test.each([
  ["yes", "yes"],
  ["42", "42"],
  ["null", null],
  [" true ", true],
  ['{"accepted":[1]}', { accepted: [1] }],
  ["{broken", "{broken"],
])("a graph gets %s as %j", (payload, resume) => {
  const input = answering("s1", [["on_interrupt", { status: "resolved", payload }]]);

  expect([input["forwardedProps"], input["resume"]]).toEqual([{ command: { resume } }, []]);
});

test("an answer names its interrupt, and a refusal to answer has no payload", () => {
  const input = answering("s1", [
    ["i1", { status: "resolved", payload: { approved: true } }],
    ["i2", { status: "cancelled" }],
  ]);

  expect(input["resume"]).toEqual([
    { interruptId: "i1", status: "resolved", payload: { approved: true } },
    { interruptId: "i2", status: "cancelled" },
  ]);
});
