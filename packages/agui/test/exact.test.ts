/**
 * What each mode of VALIDATION corrects, and what it says. Which events each mode accepts is in
 * packages/agui/test/versions.property.test.ts.
 */
import { describe, expect, test } from "vitest";
import type { ValidationMode } from "@session-ledger/agui/validate";
import { splitRawEvent } from "@session-ledger/agui/split-event";
import type { JsonObject } from "@session-ledger/agui/json";

function takes(mode: ValidationMode, event: JsonObject): boolean {
  const raw = { eventType: "", payload: JSON.stringify(event), createdAtMicros: 0n };
  const rows = splitRawEvent(raw, mode);
  return rows.ok && rows.rows[0].conformant;
}

const run = { threadId: "t", runId: "r" };
const call = { toolCallId: "c" };
const message = { messageId: "m" };

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
  test.each(titled(CORRECTED))("every mode corrects and accepts %s", (_, event) => {
    const modes = ["exact", "strict", "lenient"] as const;
    expect(modes.map((mode) => takes(mode, event))).toEqual([true, true, true]);
  });

  test("exact refuses META and the earlier types, and names AG-UI 1.0 as the reason", () => {
    const refusal = (event: JsonObject) => {
      const raw = { eventType: "", payload: JSON.stringify(event), createdAtMicros: 0n };
      return splitRawEvent(raw, "exact");
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
      const rows = splitRawEvent(raw, "strict");
      return rows.ok && rows.rows[0].renamed;
    };
    expect(CORRECTED.slice(0, 4).map(renamed)).toEqual(["result", "result", "error", undefined]);
  });
});
