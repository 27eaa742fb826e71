import type { Violation } from "../base/errors.ts";

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
