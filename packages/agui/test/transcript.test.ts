/** Rules of our own, and the limits. The property test compares the rest with the real clients. */
import { describe, expect, test, vi } from "vitest";
import type { JsonObject } from "@session-ledger/agui/json";
import { withoutAnswered, Transcript } from "@session-ledger/agui/transcript/transcript";
import { MessageList } from "@session-ledger/agui/transcript/message-list";

function after(...events: readonly JsonObject[]): Transcript {
  const transcript = new Transcript();
  for (const event of events) transcript.apply(event);
  return transcript;
}

function delta(...operations: readonly JsonObject[]): JsonObject {
  return { type: "STATE_DELTA", delta: operations };
}

function snapshot(state: unknown): JsonObject {
  return { type: "STATE_SNAPSHOT", snapshot: state };
}

describe("messages", () => {
  test.each([
    ["an empty event", {}],
    ["an unknown type", { type: "__proto__" }],
    [
      "a chunk, which is expanded elsewhere",
      { type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: "x" },
    ],
    ["a text without its id", { type: "TEXT_MESSAGE_START", messageId: 7 }],
    ["a fragment that is not text", { type: "TEXT_MESSAGE_CONTENT", messageId: "known", delta: 7 }],
    [
      "a fragment of an unknown message",
      { type: "TEXT_MESSAGE_CONTENT", messageId: "unknown", delta: "x" },
    ],
    ["arguments of an unknown call", { type: "TOOL_CALL_ARGS", toolCallId: "unknown", delta: "x" }],
    ["an end of an unknown call", { type: "TOOL_CALL_END", toolCallId: "unknown", metadata: {} }],
    ["a snapshot without a list", { type: "MESSAGES_SNAPSHOT", messages: "none" }],
    [
      "metadata that is not an object",
      { type: "TEXT_MESSAGE_END", messageId: "known", metadata: "x" },
    ],
    ["a run with no messages", { type: "RUN_STARTED", input: { messages: 7, resume: {} } }],
    ["a patch that is not a list", { type: "STATE_DELTA", delta: { op: "add" } }],
    ["an activity's delta alone", { type: "ACTIVITY_DELTA", messageId: "unknown", patch: [] }],
    ["a state snapshot without a state", { type: "STATE_SNAPSHOT" }],
  ])("stay unchanged by %s", (_, event) => {
    const transcript = after({ type: "TEXT_MESSAGE_START", messageId: "known" });
    transcript.apply(event);
    expect(transcript.messages()).toEqual([{ id: "known", role: "assistant", content: "" }]);
    expect(transcript.state).toBeUndefined();
    expect(transcript.interrupts()).toEqual([]);
  });

  test("are taken from a snapshot as far as they are valid", () => {
    const messages = [
      null,
      7,
      { id: "m", role: "user", toolCalls: [null, { id: "c", function: 7 }] },
    ];
    const transcript = after(
      { type: "MESSAGES_SNAPSHOT", messages },
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "x" },
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "f" },
      { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "" },
    );
    expect(transcript.messages()).toEqual([
      messages[2],
      { id: "r", toolCallId: "c", role: "tool", content: "" },
    ]);
  });
});

describe("state", () => {
  test("is absent until an event sets it, and may be null", () => {
    expect(after().state).toBeUndefined();
    expect(after(delta({ op: "remove", path: "/a" })).state).toBeUndefined();
    expect(after(delta({ op: "add", path: "/a", value: 1 })).state).toEqual({ a: 1 });
    expect(after(snapshot(null)).state).toBeNull();
    expect(after(snapshot(0)).state).toBe(0);
    expect(after(snapshot(0), { type: "STATE_SNAPSHOT" }).state).toBe(0);
  });

  test("refuses patch paths through a prototype, and keeps such keys in values", () => {
    const value = JSON.parse('{"__proto__":{"polluted":true}}');
    const transcript = after(
      snapshot(JSON.parse('{"__proto__":{"own":1},"a":{},"toString":{"own":1}}')),
      delta({ op: "add", path: "/__proto__/polluted", value: true }),
      delta({ op: "add", path: "/a/constructor/prototype/polluted", value: true }),
      // After the move the key no longer hides the inherited one, which the clients would then
      // change.
      delta({ op: "move", from: "/toString", path: "/toString/polluted" }),
      delta({ op: "copy", from: "/toString", path: "/method" }),
      delta({ op: "move", from: "/valueOf", path: "/method" }),
      delta({ op: "add", path: "/a/b", value }),
      { type: "TEXT_MESSAGE_START", messageId: "__proto__", metadata: value },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "__proto__", delta: "x", metadata: value },
    );
    expect(JSON.stringify(transcript.state)).toBe(
      '{"__proto__":{"own":1},"a":{"b":{"__proto__":{"polluted":true}}}}',
    );
    expect(JSON.stringify(transcript.messages())).toBe(
      '[{"id":"__proto__","role":"assistant","content":"x","metadata":{"__proto__":{"polluted":true}}}]',
    );
    expect(transcript.state).not.toHaveProperty("method");
    const empty: Record<string, unknown> = {};
    expect(empty["polluted"]).toBeUndefined();
    const method = Object.getOwnPropertyDescriptor(Object.prototype, "toString");
    expect(Object.keys(method?.value)).toEqual([]);
  });

  test("refuses such paths also where the state has these keys itself", () => {
    const own = { constructor: { prototype: {} }, prototype: {} };
    const transcript = after(
      snapshot(own),
      delta({ op: "add", path: "/constructor/prototype/a", value: 1 }),
      delta({ op: "add", path: "/prototype/a", value: 1 }),
    );
    expect(transcript.state).toEqual({ ...own, prototype: { a: 1 } });
  });

  test("is given up when copies make it too large, until the next snapshot", () => {
    const double = delta(
      { op: "copy", from: "", path: "/a" },
      { op: "copy", from: "/a", path: "/b" },
    );
    const started = snapshot({ text: "x".repeat(1_000) });
    const transcript = after(started, ...Array.from({ length: 40 }, () => double));
    expect(transcript.isStateTooLarge).toBe(true);
    transcript.apply(delta({ op: "add", path: "/b", value: 1 }));
    expect(transcript.state).toBeUndefined();
    transcript.apply(snapshot({ small: true }));
    transcript.apply(delta({ op: "add", path: "/b", value: 1 }));
    expect(transcript.state).toEqual({ small: true, b: 1 });
    expect(transcript.isStateTooLarge).toBe(false);
  });

  test("is given up when patches copy and remove too much over the session", () => {
    const limits = { patchedBytesMax: 10_000, patchCostBytesMax: 10_000 };
    const transcript = new Transcript(limits);
    transcript.apply(snapshot({ text: "x".repeat(1_000) }));
    const again = delta(
      { op: "copy", from: "/text", path: "/other" },
      { op: "remove", path: "/other" },
    );
    for (let times = 0; times < 4; times += 1) transcript.apply(again);
    expect(transcript.isStateTooLarge).toBe(false);
    transcript.apply(again);
    expect(transcript.isStateTooLarge).toBe(true);
  });

  test.each([
    [
      "shifts",
      [
        { op: "add", path: "/list/0", value: 0 },
        { op: "remove", path: "/list/0" },
      ],
    ],
    ["looks at", [{ op: "test", path: "/wide", value: {} }]],
  ])("is given up when a patch %s too much, from the same allowance", (_, operations) => {
    const transcript = new Transcript({ patchedBytesMax: 1_000_000, patchCostBytesMax: 1_000_000 });
    const wide = Object.fromEntries(Array.from({ length: 1_000 }, (__, key) => [key, 0]));
    transcript.apply(snapshot({ list: Array.from({ length: 1_000 }, () => 0), wide }));
    let times = 0;
    while (!transcript.isStateTooLarge && times < 20_000) {
      transcript.apply(delta(...operations));
      times += 1;
    }
    expect(times).toBeGreaterThan(10);
    expect(times).toBeLessThan(10_000);
  });

  test("is given up before it is too deep for JSON.stringify", () => {
    const nest = delta(
      { op: "add", path: "/outer", value: {} },
      { op: "move", from: "/inner", path: "/outer/inner" },
      { op: "move", from: "/outer", path: "/inner" },
    );
    const transcript = new Transcript({ patchedBytesMax: 1e9, patchCostBytesMax: 1e12 });
    transcript.apply(snapshot({ inner: {} }));
    for (let times = 0; times < 200; times += 1) transcript.apply(nest);
    expect(JSON.stringify(transcript.state).length).toBeGreaterThan(200);
    for (let times = 0; times < 200; times += 1) transcript.apply(nest);
    expect(transcript.isStateTooLarge).toBe(true);
  });

  test("refuses to move a value into itself", () => {
    const transcript = after(snapshot({ a: 1 }), delta({ op: "move", from: "", path: "/b" }));
    expect(transcript.state).toEqual({ a: 1 });
  });
});

test("an activity keeps its content when a patch would make it too large", () => {
  const transcript = new Transcript({ patchedBytesMax: 1_000, patchCostBytesMax: 10_000 });
  const activity = { messageId: "a", activityType: "PLAN" };
  transcript.apply({ type: "ACTIVITY_SNAPSHOT", ...activity, content: { step: 1 } });
  const patch = [{ op: "add", path: "/text", value: "x".repeat(2_000) }];
  transcript.apply({ type: "ACTIVITY_DELTA", ...activity, patch });
  expect(transcript.messages()).toEqual([
    { id: "a", role: "activity", activityType: "PLAN", content: { step: 1 } },
  ]);
  transcript.apply({
    type: "ACTIVITY_DELTA",
    ...activity,
    patch: [{ op: "replace", path: "/step", value: 2 }],
  });
  expect(transcript.messages()[0]?.["content"]).toEqual({ step: 2 });
});

describe("interrupts", () => {
  const asks = (...ids: readonly string[]): JsonObject => ({
    type: "RUN_FINISHED",
    threadId: "t",
    runId: "r",
    outcome: { type: "interrupt", interrupts: ids.map((id) => ({ id, reason: "approve" })) },
  });

  test("are not replayed once they are answered", () => {
    const pending = after(asks("j")).interrupts();
    expect(withoutAnswered(asks("i", "j"), pending)).toEqual(asks("j"));
    const whole = asks("j");
    expect(withoutAnswered(whole, pending)).toBe(whole);
    expect(withoutAnswered(asks("i"), [])).toEqual({
      type: "RUN_FINISHED",
      threadId: "t",
      runId: "r",
    });
    const error = { type: "RUN_ERROR", message: "no" };
    expect(withoutAnswered(error, [])).toBe(error);
  });
});

test("only a snapshot walks through the existing messages", () => {
  const looks = vi.spyOn(MessageList.prototype, "entries");
  const transcript = after(
    { type: "RUN_STARTED", input: { messages: [{ id: "u", role: "user", content: "" }] } },
    { type: "TEXT_MESSAGE_START", messageId: "m", metadata: { a: 1 } },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "f", parentMessageId: "m" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "x" },
    { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "" },
    { type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: "c", encryptedValue: "" },
    { type: "ACTIVITY_SNAPSHOT", messageId: "a", activityType: "PLAN", content: {} },
    { type: "ACTIVITY_SNAPSHOT", messageId: "a", activityType: "PLAN", content: {} },
    { type: "ACTIVITY_DELTA", messageId: "a", activityType: "PLAN", patch: [] },
    delta({ op: "add", path: "/a", value: 1 }),
  );
  expect(looks).not.toHaveBeenCalled();
  transcript.apply({ type: "MESSAGES_SNAPSHOT", messages: [] });
  expect(looks).toHaveBeenCalledTimes(1);
  looks.mockRestore();
});
