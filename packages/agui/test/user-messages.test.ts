/** What the payload of a message row says: the forms that runners push, and texts that only look like one. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { messagesOfRow } from "@session-ledger/agui/canonical/user-messages";

function said(eventType: string, payload: string, sender?: string): readonly unknown[] {
  const row = { id: "row", seq: 1n, eventType, payload, sender, createdAtMicros: 1_001n };
  return messagesOfRow({ ...row, sentAtMicros: undefined }).messages;
}

const session = { createdAt: "1970-01-01T00:00:00.001001Z" };
const metadata = { session };

describe("a row of a person", () => {
  test.each([
    ["text", "hi", "hi"],
    ["nothing", "", ""],
    ["an object with a text", '{"text": "hi"}', "hi"],
    ["any other object", '{"content": "hi"}', '{"content": "hi"}'],
    ["JSON that is no object", "[1]", "[1]"],
    ["text that begins like JSON", "{hi}", "{hi}"],
    ["messages that are no list", '{"messages": 1}', '{"messages": 1}'],
  ])("with %s", (_name, payload, content) => {
    expect(said("user", payload)).toEqual([{ id: "row", role: "user", content, metadata }]);
  });

  test("regression: nested too deeply, it is a text; JSON.stringify ran out of stack", () => {
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    const payloads = {
      user: `{"messages":[{"id":"1","role":"user","content":${deep}}]}`,
      assistant: `{"messages":[{"id":"1","role":"assistant","toolCalls":${deep}}]}`,
      tool_use: `{"tool":"t","input":${deep}}`,
      tool_result: `{"tool_call_id":"t","result":${deep}}`,
      error: `{"error":${deep}}`,
    };
    for (const [eventType, payload] of Object.entries(payloads)) {
      expect(JSON.stringify(said(eventType, payload))).toContain(JSON.stringify(payload));
    }
  });

  test("with a RunAgentInput gives the new messages at its end, under their own ids", () => {
    const messages = [
      { id: "1", role: "user", content: "old" },
      { id: "2", role: "assistant", content: "old" },
      { role: "tool", tool_call_id: "c1", content: "result" },
      { id: "4", role: "user", content: "new", name: "Bo", metadata: { own: 1 } },
      { role: "user", content: "newer" },
      "no message",
    ];
    const sender = '{"displayName":"Ann","isBot":true}';
    const about = { session: { ...session, sender: { displayName: "Ann", isBot: true } } };
    expect(said("user", JSON.stringify({ threadId: "t", messages }), sender)).toEqual([
      { id: "row", role: "tool", toolCallId: "c1", content: "result" },
      { id: "4", role: "user", content: "new", name: "Bo", metadata: { own: 1, ...about } },
      { id: "row-2", role: "user", content: "newer", name: "Ann", metadata: about },
    ]);
    expect(said("user", '{"messages": [], "resume": []}')).toEqual([]);
  });
});

describe("a row of an agent", () => {
  test.each([
    ["assistant", "hi", [{ id: "row", role: "assistant", content: "hi" }]],
    ["assistant", " ", []],
    [
      "assistant",
      '{"run_id":"r","messages":[{"id":"u","role":"user"},{"id":"a","role":"assistant","content":"x"}]}',
      [{ id: "a", role: "assistant", content: "x" }],
    ],
    ["system", "note", [{ id: "row", role: "system", content: "note" }]],
    ["error", "boom", [{ id: "row", role: "system", name: "error", content: "boom" }]],
    ["error", '{"error":"boom"}', [{ id: "row", role: "system", name: "error", content: "boom" }]],
    ["lifecycle", '{"event":"run_started"}', []],
    [
      "tool_result",
      '{"tool_call_id":"c","result":{"n":1}}',
      [{ id: "row", role: "tool", toolCallId: "c", content: '{"n":1}' }],
    ],
    ["tool_result", "plain", [{ id: "row", role: "tool", toolCallId: "", content: "plain" }]],
  ])("%s: %s", (eventType, payload, messages) => {
    expect(said(eventType, payload)).toEqual(messages);
  });

  test.each([
    ['{"tool":"t","tool_call_id":"c","input":{"a":1}}', "t", '{"a":1}'],
    ['{"tool":"t","tool_call_id":"c","input":{"raw":"{a"}}', "t", "{a"],
    ['{"tool":"t","tool_call_id":"c","input":{"value":[1]}}', "t", "[1]"],
    ['{"tool":"t","tool_call_id":"c"}', "t", ""],
  ])("tool_use: %s", (payload, name, given) => {
    const toolCalls = [{ id: "c", type: "function", function: { name, arguments: given } }];
    expect(said("tool_use", payload)).toEqual([{ id: "row", role: "assistant", toolCalls }]);
  });
});

test("no payload and no sender makes it throw, and every message has an id and a role", () => {
  const types = ["user", "assistant", "tool_use", "tool_result", "system", "error", "lifecycle"];
  const text = fc.oneof(fc.string(), fc.json());
  const form = fc
    .record({ messages: fc.jsonValue(), text: fc.jsonValue(), input: fc.jsonValue() })
    .map((value) => JSON.stringify(value));
  fc.assert(
    fc.property(fc.constantFrom(...types), fc.oneof(text, form), text, (type, payload, sender) => {
      for (const message of said(type, payload, sender)) {
        expect(message).toMatchObject({ id: expect.any(String), role: expect.any(String) });
      }
    }),
  );
});
