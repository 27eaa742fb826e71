import { expect, test } from "vitest";
import { ServiceError } from "@session-ledger/base/errors";
import {
  bytesOf,
  clientMessagesIn,
  type ClientMessage,
  reorders,
} from "../../src/conversation/client-messages.ts";

const FIELD = { field: "messages" };

function clientMessages(...ids: readonly string[]): readonly ClientMessage[] {
  return clientMessagesIn(
    ids.map((id) => ({ id, role: "assistant", content: "" })),
    FIELD,
  );
}

test.each([
  ["no messages", [], ["a", "b"], false],
  ["the first messages", ["a", "b"], ["a", "b", "c"], false],
  ["all messages", ["a", "b"], ["a", "b"], false],
  ["messages that are gone", ["x", "y"], ["a", "b"], false],
  ["the first messages, with gone ones in between", ["a", "x", "b"], ["a", "b", "c"], false],
  ["messages in another order", ["b", "a"], ["a", "b"], true],
  ["messages after new ones", ["b"], ["a", "b"], true],
  ["messages with new ones in between", ["a", "c"], ["a", "b", "c"], true],
])(
  "whether a snapshot reorders a client's messages is known when it has %s",
  (_, has, log, expected) => {
    expect(reorders(clientMessages(...has), log)).toBe(expected);
  },
);

test("entries of a client that are not messages are ignored", () => {
  const messages = [null, 1, "a", {}, [], { id: 7 }, { id: "x".repeat(1_025) }, { id: "a" }];
  expect(clientMessagesIn(messages, FIELD)).toEqual(clientMessages("a"));
});

test("only the used fields of a message are kept", () => {
  const content = "x".repeat(100_000);
  const messages = [
    { id: "u", role: "user", content },
    { id: "r", role: "reasoning", content },
    { id: "p", role: "activity", activityType: "PLAN", content: { content } },
    { id: "q", role: "activity", activityType: content },
  ];
  const held = clientMessagesIn(messages, FIELD);
  expect(held).toEqual([
    { id: "u", role: "user", activityType: undefined },
    { id: "r", role: "reasoning", activityType: undefined },
    { id: "p", role: "activity", activityType: "PLAN" },
    { id: "q", role: "activity", activityType: undefined },
  ]);
  expect(bytesOf(held)).toBeLessThan(1_000);
});

test.each([
  ["many messages", { length: 20_001 }, 1],
  ["long ids", { length: 1_025 }, 1_024],
])("a client with too much is refused: %s", (_, list, idChars) => {
  const messages = Array.from(list, () => ({ id: "i".repeat(idChars) }));
  const refused = expect.objectContaining({ violations: [expect.objectContaining(FIELD)] });
  expect(() => clientMessagesIn(messages, FIELD)).toThrow(ServiceError);
  expect(() => clientMessagesIn(messages, FIELD)).toThrow(refused);
  expect(clientMessagesIn(messages.slice(1), FIELD)).toHaveLength(list.length - 1);
});
