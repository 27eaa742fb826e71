/**
 * The events that each mode of VALIDATION accepts, as a table of shapes. The schemas of AG-UI 1.0
 * give their own verdict on each shape as well.
 */
import { EventSchema } from "@ag-ui/core/schemas";
import { describe, expect, test } from "vitest";
import type { ValidationMode } from "../../src/agui/conform.ts";
import { rawEventRows } from "../../src/agui/rows.ts";
import type { JsonObject } from "../../src/agui/json.ts";

function takes(mode: ValidationMode, event: JsonObject): boolean {
  const raw = { eventType: "", payload: JSON.stringify(event), createdAtMicros: 0n };
  const rows = rawEventRows(raw, mode);
  return rows.ok && rows.rows[0].conformant;
}

const run = { threadId: "t", runId: "r" };
const input = { ...run, state: {}, messages: [], tools: [], context: [], forwardedProps: {} };
const call = { toolCallId: "c" };
const message = { messageId: "m" };
const activity = { ...message, activityType: "plan" };
const patch = [{ op: "add", path: "/a", value: 1 }];
const interrupts = [{ id: "i", reason: "ask" }];

const ACCEPTED: readonly JsonObject[] = [
  { type: "RUN_STARTED", ...run },
  { type: "RUN_STARTED", ...run, parentRunId: "p", input },
  { type: "RUN_FINISHED", ...run },
  { type: "RUN_FINISHED", ...run, outcome: { type: "success" } },
  { type: "RUN_FINISHED", ...run, outcome: { type: "interrupt", interrupts } },
  { type: "RUN_ERROR", message: "broke" },
  { type: "RUN_ERROR", message: "", code: "E" },
  { type: "STEP_STARTED", stepName: "s" },
  { type: "STEP_FINISHED", stepName: "s" },
  { type: "TEXT_MESSAGE_START", ...message, role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", ...message, delta: "a" },
  { type: "TEXT_MESSAGE_END", ...message },
  { type: "TEXT_MESSAGE_CHUNK" },
  { type: "TEXT_MESSAGE_CHUNK", ...message, role: "assistant", delta: "a" },
  { type: "TOOL_CALL_START", ...call, toolCallName: "f" },
  { type: "TOOL_CALL_START", ...call, toolCallName: "f", parentMessageId: "m" },
  { type: "TOOL_CALL_ARGS", ...call, delta: "{" },
  { type: "TOOL_CALL_END", ...call },
  { type: "TOOL_CALL_CHUNK", ...call, toolCallName: "f", delta: "{" },
  { type: "TOOL_CALL_RESULT", ...message, ...call, content: "found" },
  { type: "TOOL_CALL_RESULT", ...message, ...call, content: "found", role: "tool" },
  { type: "REASONING_START", ...message },
  { type: "REASONING_MESSAGE_START", ...message, role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", ...message, delta: "a" },
  { type: "REASONING_MESSAGE_END", ...message },
  { type: "REASONING_MESSAGE_CHUNK", ...message, delta: "a" },
  { type: "REASONING_END", ...message },
  { type: "REASONING_ENCRYPTED_VALUE", subtype: "message", entityId: "m", encryptedValue: "x" },
  { type: "STATE_SNAPSHOT", snapshot: { a: 1 } },
  { type: "STATE_DELTA", delta: patch },
  { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m", role: "user", content: "hi" }] },
  { type: "ACTIVITY_SNAPSHOT", ...activity, content: {} },
  { type: "ACTIVITY_DELTA", ...activity, patch },
  { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper" },
  { type: "SUBAGENT_FINISHED", subagentRunId: "s" },
  { type: "SUBAGENT_ERROR", subagentRunId: "s", message: "broke" },
  { type: "RAW", event: {} },
  { type: "CUSTOM", name: "n", value: 1 },
  { type: "CUSTOM", name: "n", value: 1, timestamp: 1, metadata: { a: 1 }, more: true },
];

/** Events that 1.0 refuses, and an earlier version or a draft accepts. */
const WIDER: readonly JsonObject[] = [
  { type: "THINKING_START", title: "t" },
  { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: "a" },
  { type: "THINKING_END" },
  { type: "CUSTOM", name: "n" },
  { type: "RAW" },
  { type: "STATE_SNAPSHOT" },
  { type: "STATE_DELTA", delta: [{ op: "no such operation" }] },
  { type: "STEP_STARTED", stepName: "s", metadata: "no object" },
  { type: "STEP_STARTED", stepName: "s", timestamp: 2 ** 60 },
];

const REFUSED: readonly JsonObject[] = [
  { type: "NO_SUCH_TYPE" },
  { type: "text_message_start", ...message },
  { type: "RUN_STARTED", threadId: "t" },
  { type: "RUN_STARTED", ...run, runId: 1 },
  { type: "RUN_FINISHED", runId: "r" },
  { type: "RUN_FINISHED", ...run, outcome: { type: "interrupt" } },
  { type: "RUN_ERROR" },
  { type: "RUN_ERROR", message: 1 },
  { type: "STEP_STARTED" },
  { type: "STEP_FINISHED", stepName: {} },
  { type: "TEXT_MESSAGE_START" },
  { type: "TEXT_MESSAGE_START", ...message, role: "nobody" },
  { type: "TEXT_MESSAGE_CONTENT", ...message },
  { type: "TEXT_MESSAGE_CONTENT", ...message, delta: 1 },
  { type: "TEXT_MESSAGE_END" },
  { type: "TOOL_CALL_START", ...call },
  { type: "TOOL_CALL_ARGS", ...call, args: "{}" },
  { type: "TOOL_CALL_END" },
  { type: "TOOL_CALL_RESULT", ...call, content: "no message" },
  { type: "TOOL_CALL_RESULT", ...message, ...call },
  { type: "REASONING_MESSAGE_START", ...message },
  { type: "REASONING_ENCRYPTED_VALUE", subtype: "other", entityId: "m", encryptedValue: "x" },
  { type: "STATE_DELTA", delta: {} },
  { type: "MESSAGES_SNAPSHOT", messages: [{ role: "user", content: "no id" }] },
  { type: "MESSAGES_SNAPSHOT" },
  { type: "ACTIVITY_SNAPSHOT", ...message, content: {} },
  { type: "ACTIVITY_DELTA", ...activity, patch: "none" },
  { type: "CUSTOM", value: 1 },
];

/** Events that 1.0 refuses as they are, and that every mode corrects before it judges them. */
const CORRECTED: readonly JsonObject[] = [
  { type: "TOOL_CALL_RESULT", ...message, ...call, result: "found" },
  { type: "TOOL_CALL_RESULT", ...message, ...call, result: { n: 1 } },
  { type: "RUN_ERROR", error: "broke" },
  { type: "TEXT_MESSAGE_END", message_id: "m" },
  { type: "RUN_FINISHED", ...run, result: null },
  { type: "TEXT_MESSAGE_START", ...message, role: null },
  { type: "STEP_STARTED", stepName: "s", timestamp: 1.5 },
  { type: "REASONING_MESSAGE_START", ...message, role: "assistant" },
];

const titled = (events: readonly JsonObject[]) =>
  events.map((event) => [JSON.stringify(event), event] as const);

describe("VALIDATION, event by event", () => {
  const verdicts = (event: JsonObject) => ({
    current: EventSchema.safeParse(event).success,
    exact: takes("exact", event),
    strict: takes("strict", event),
    lenient: takes("lenient", event),
  });

  test.each(titled(ACCEPTED))("every mode accepts %s", (_, event) => {
    const all = { current: true, exact: true, strict: true, lenient: true };
    expect(verdicts(event)).toEqual(all);
  });

  test.each(titled(WIDER))("only exact refuses %s", (_, event) => {
    const wide = { current: false, exact: false, strict: true, lenient: true };
    expect(verdicts(event)).toEqual(wide);
  });

  test.each(titled(REFUSED))("no mode accepts as AG-UI %s", (_, event) => {
    const none = { current: false, exact: false, strict: false, lenient: false };
    expect(verdicts(event)).toEqual(none);
  });

  test.each(titled(CORRECTED))("every mode corrects and accepts %s", (_, event) => {
    expect(verdicts(event)).toMatchObject({ exact: true, strict: true, lenient: true });
  });

  test("exact refuses META and the earlier types, and says that AG-UI 1.0 does not have them", () => {
    const refusal = (event: JsonObject) => {
      const raw = { eventType: "", payload: JSON.stringify(event), createdAtMicros: 0n };
      return rawEventRows(raw, "exact");
    };
    const description = (type: string) => ({
      violations: [{ field: "event_type", description: `event_type ${type} is not in AG-UI 1.0` }],
    });
    expect(refusal({ type: "META", metaType: "m" })).toMatchObject(description("META"));
    expect(refusal({ type: "THINKING_END" })).toMatchObject(description("THINKING_END"));
  });

  test("the original name of a renamed field is reported for counting", () => {
    const renamed = (event: JsonObject) => {
      const raw = { eventType: "", payload: JSON.stringify(event), createdAtMicros: 0n };
      const rows = rawEventRows(raw, "strict");
      return rows.ok && rows.rows[0].renamed;
    };
    expect(CORRECTED.slice(0, 4).map(renamed)).toEqual(["result", "result", "error", undefined]);
  });
});
