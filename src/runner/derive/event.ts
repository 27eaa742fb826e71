/**
 * Events as agents emit them, before the service has normalised them. Keys may be in snake_case,
 * optional fields may be null, and a whole message may be one event in the grouped form
 * (src/agui/grouped.ts). They are read leniently and without the schemas, so a runner need not load
 * the validator. An unreadable event derives nothing, and the service reports its fault.
 */
import type { EventType } from "../../agui/catalogue.ts";
import { isObject, type JsonObject } from "../../agui/json.ts";

/**
 * The fields that messages are made from, in the spelling of the protocol and of Python runners.
 */
const SNAKE_NAMES = {
  messageId: "message_id",
  toolCallId: "tool_call_id",
  toolCallName: "tool_call_name",
  runId: "run_id",
  subagentRunId: "subagent_run_id",
  role: "role",
  delta: "delta",
  name: "name",
  code: "code",
  message: "message",
} as const;

type FieldName = keyof typeof SNAKE_NAMES;

/** Undefined: the field is absent, null, or not a text. */
export function textField(event: JsonObject, name: FieldName): string | undefined {
  const value = event[name] ?? event[SNAKE_NAMES[name]];
  return typeof value === "string" ? value : undefined;
}

/** Undefined when the text is not a JSON object. */
export function readEvent(payload: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(payload);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

interface Grouped {
  readonly content: EventType;
  readonly end: EventType;
}

const GROUPED: ReadonlyMap<unknown, Grouped> = new Map([
  ["TEXT_MESSAGE_START", { content: "TEXT_MESSAGE_CONTENT", end: "TEXT_MESSAGE_END" }],
  ["TOOL_CALL_START", { content: "TOOL_CALL_ARGS", end: "TOOL_CALL_END" }],
]);

/**
 * The events that one event stands for: itself, or START, a fragment and END for the grouped form.
 */
export function ungrouped(event: JsonObject): readonly JsonObject[] {
  const grouped = GROUPED.get(event["type"]);
  if (grouped === undefined || !Object.hasOwn(event, "fragment_count")) return [event];
  const { accumulated_content: delta, end_event: end } = event;
  return [
    event,
    { ...event, type: grouped.content, delta: typeof delta === "string" ? delta : "" },
    // The END has ids of its own; the ids of START are used where it has none.
    ...(isObject(end) ? [{ ...event, ...end, type: grouped.end }] : []),
  ];
}
