import type { Violation } from "@session-ledger/base/errors";
import { isObject, type JsonObject } from "./json.ts";

/** The message types; `lifecycle` is in no document, but existing runners send it. */
export const MESSAGE_TYPES = [
  "user",
  "assistant",
  "tool_use",
  "tool_result",
  "system",
  "error",
  "lifecycle",
] as const;

export function checkMessageType(eventType: string): Violation | undefined {
  if (MESSAGE_TYPES.some((type) => type === eventType)) return undefined;
  if (eventType === "") return { field: "event_type", description: "event_type is required" };
  const allowed = MESSAGE_TYPES.join(", ");
  return { field: "event_type", description: `event_type must be one of ${allowed}` };
}

/** The new messages of a RunAgentInput: the user and tool messages at its end. */
export function newAtEnd(listed: readonly unknown[]): readonly JsonObject[] {
  const messages = listed.filter(isObject);
  const lastAnswer = messages.findLastIndex(({ role }) => role !== "user" && role !== "tool");
  return messages.slice(lastAnswer + 1);
}

/** Gives the first message without an id the id of the row, and the next ones ids made from it. */
export function withIds(rowId: string, messages: readonly JsonObject[]): readonly JsonObject[] {
  return messages.map((message, at) => {
    const { tool_call_id: callId, ...rest } = message;
    const isTools = message["role"] === "tool";
    const fields = isTools && callId !== undefined ? { toolCallId: callId, ...rest } : message;
    const { id } = fields;
    if (typeof id === "string" && id !== "") return fields;
    return { ...fields, id: at === 0 ? rowId : `${rowId}-${at}` };
  });
}
