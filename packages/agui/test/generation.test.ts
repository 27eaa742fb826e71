import { describe, expect, test } from "vitest";
import { generationOf, servedTo, type Generation } from "@session-ledger/agui/generation/served";
import type { JsonObject } from "@session-ledger/agui/json";

function served(generation: Generation, value: JsonObject): readonly unknown[] {
  return servedTo(generation, { value, text: undefined }).map((text): unknown => JSON.parse(text));
}

test.each([
  [undefined, "0.0.59"],
  ["", "0.0.59"],
  ["0.0.59", "0.0.59"],
  ["1", "0.0.59"],
  ["one", "0.0.59"],
  ["1.0", "1.0.0"],
  ["1.7", "1.0.0"],
  ["12.0", "1.0.0"],
  ["1.0.0", "1.0.0"],
])("a client with version %s gets the generation %s", (version, generation) => {
  expect(generationOf(version)).toBe(generation);
});

const RUN = { threadId: "t", runId: "r" };

/** An event, and its form for the two generations; undefined if a generation does not get it. */
const TABLE: Readonly<
  Record<string, readonly [JsonObject, JsonObject | undefined, JsonObject | undefined]>
> = {
  "CUSTOM without a value": [
    { type: "CUSTOM", name: "n" },
    { type: "CUSTOM", name: "n", value: null },
    { type: "CUSTOM", name: "n", value: null },
  ],
  "RAW without an event": [
    { type: "RAW", source: "s" },
    { type: "RAW", source: "s", event: null },
    { type: "RAW", source: "s", event: null },
  ],
  "a missing state": [{ type: "STATE_SNAPSHOT" }, undefined, undefined],
  "optional fields of any kind": [
    {
      type: "STEP_STARTED",
      stepName: "s",
      timestamp: 2 ** 60,
      metadata: 1,
      subagentRunId: null,
      rawEvent: null,
    },
    { type: "STEP_STARTED", stepName: "s" },
    { type: "STEP_STARTED", stepName: "s" },
  ],
  "a subagent": [
    { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "n", timestamp: 3 },
    { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "n", timestamp: 3 },
    { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "n", timestamp: 3 },
  ],
  "a subagent's step": [
    { type: "STEP_STARTED", stepName: "s", subagentRunId: "a" },
    { type: "STEP_STARTED", stepName: "s", subagentRunId: "a" },
    { type: "STEP_STARTED", stepName: "s", subagentRunId: "a" },
  ],
  "a run that was cancelled": [
    { type: "RUN_FINISHED", ...RUN, outcome: { type: "cancelled" } },
    { type: "RUN_FINISHED", ...RUN, outcome: { type: "cancelled" } },
    { type: "RUN_FINISHED", ...RUN },
  ],
  "a success that names tool calls": [
    { type: "RUN_FINISHED", ...RUN, outcome: { type: "success", pendingToolCallIds: ["c"] } },
    { type: "RUN_FINISHED", ...RUN, outcome: { type: "success", pendingToolCallIds: ["c"] } },
    { type: "RUN_FINISHED", ...RUN, outcome: { type: "success" } },
  ],
  "an interrupt of nobody in particular": [
    {
      type: "RUN_FINISHED",
      ...RUN,
      usage: [{ inputTokens: -1 }],
      outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r", subagentRunId: 1 }] },
    },
    {
      type: "RUN_FINISHED",
      ...RUN,
      outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] },
    },
    {
      type: "RUN_FINISHED",
      ...RUN,
      outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] },
    },
  ],
  "a tool's result in parts": [
    {
      type: "TOOL_CALL_RESULT",
      messageId: "m",
      toolCallId: "c",
      content: [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
    },
    {
      type: "TOOL_CALL_RESULT",
      messageId: "m",
      toolCallId: "c",
      content: [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
    },
    { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "c", content: "a\nb" },
  ],
  "a run's input of 1.0.0": [
    { type: "RUN_STARTED", ...RUN, input: { ...RUN, messages: [] } },
    { type: "RUN_STARTED", ...RUN, input: { ...RUN, messages: [] } },
    { type: "RUN_STARTED", ...RUN, input: { ...RUN, messages: [], tools: [], context: [] } },
  ],
};

test.each(Object.entries(TABLE))(
  "both generations get the form that they accept: %s",
  (_, [value, current, earlier]) => {
    const expected = (event: JsonObject | undefined): readonly unknown[] =>
      event === undefined ? [] : [event];
    expect(served("1.0.0", value)).toEqual(expected(current));
    expect(served("0.0.59", value)).toEqual(expected(earlier));
  },
);

describe("each message of a snapshot is narrowed", () => {
  const image = { type: "image", source: { type: "url", value: "u", mimeType: "image/png" } };
  const binary = { type: "binary", mimeType: "image/png", url: "u" };
  const file = { type: "document", source: { type: "file", value: "f" } };
  const user = (...content: readonly unknown[]) => ({ id: "u", role: "user", content });
  const messages = (generation: Generation, ...of: readonly JsonObject[]): unknown => {
    const [event] = servedTo(generation, {
      value: { type: "MESSAGES_SNAPSHOT", messages: of },
      text: undefined,
    });
    const parsed: unknown = JSON.parse(event ?? "{}");
    return parsed;
  };
  const snapshot = (...of: readonly JsonObject[]): JsonObject => ({
    type: "MESSAGES_SNAPSHOT",
    messages: of,
  });

  test("by the media that the generation knows", () => {
    expect(messages("1.0.0", user(binary))).toEqual(snapshot(user(image)));
    expect(messages("1.0.0", user(binary, image))).toEqual(snapshot(user(image)));
    expect(messages("1.0.0", user({ type: "binary", mimeType: "a/b", id: "only" }))).toEqual(
      snapshot(user()),
    );
    expect(messages("1.0.0", user(file))).toEqual(snapshot(user(file)));
    expect(messages("0.0.59", user(binary, image))).toEqual(snapshot(user(binary, image)));
    expect(messages("0.0.59", user({ type: "text", text: "t" }, file))).toEqual(
      snapshot(user({ type: "text", text: "t" })),
    );
  });

  test("by writing a tool's message in parts as text", () => {
    const tool = {
      id: "t",
      role: "tool",
      toolCallId: "c",
      content: [{ type: "text", text: "a" }, image],
    };
    expect(messages("1.0.0", tool)).toEqual(snapshot(tool));
    expect(messages("0.0.59", tool)).toEqual(
      snapshot({ ...tool, content: JSON.stringify(tool.content) }),
    );
  });

  test("by dropping optional fields that are wrong and messages that are invalid", () => {
    const good = { id: "a", role: "assistant", content: "hi" };
    expect(
      messages(
        "0.0.59",
        {
          ...good,
          subagentRunId: 1,
          metadata: null,
          toolCalls: [
            { id: "c", type: "function", function: { name: "f", arguments: "" }, metadata: 1 },
          ],
        },
        { id: "x", role: "wizard" },
        { id: 7, role: "user", content: "" },
      ),
    ).toEqual(
      snapshot({
        ...good,
        toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "" } }],
      }),
    );
  });
});
