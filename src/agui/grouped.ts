/**
 * The grouped form: how existing runners compress. One push is a whole message, tool call or
 * reasoning message,
 *
 *   { …START's fields, "accumulated_content": text, "fragment_count": n, "end_event": { …END } }
 *
 * and stands for a START, n fragments, and an END when it was not interrupted.
 * `accumulated_content` is absent when all fragments were empty. The event is taken apart by spans,
 * so that each part keeps its bytes. The runner has dropped the other fields of the fragments. So
 * the part that stands for the fragments gets the ids of the START, and neither its role nor its
 * timestamp.
 */
import type { Violation } from "../base/errors.ts";
import { applyEdits, dropEdits, memberSpans, type Member } from "./spans.ts";
import { EVENT_COUNT_MAX } from "./catalogue.ts";
import { snakeName } from "./fields.ts";
import { isObject, parseObject, type JsonObject } from "./json.ts";
import { readPayload, type Payload } from "./payload.ts";

export interface Part {
  readonly eventType: string;
  readonly payload: Payload;
  readonly eventCount: number;
}

/** The parts are events that are not normalised or validated yet. */
export interface Group {
  readonly start: Part;
  /** Undefined when the group has no fragment. */
  readonly content: Part | undefined;
  /** Undefined when the construct was not ended. */
  readonly end: Part | undefined;
  /** The number of events that the group stands for. */
  readonly eventCount: number;
}

type SplitGroup =
  | { readonly ok: true; readonly group: Group }
  | { readonly ok: false; readonly violations: readonly Violation[] };

interface Kind {
  readonly content: string;
  readonly end: string;
  readonly idField: string;
}

const KINDS: ReadonlyMap<string, Kind> = new Map([
  [
    "TEXT_MESSAGE_START",
    { content: "TEXT_MESSAGE_CONTENT", end: "TEXT_MESSAGE_END", idField: "messageId" },
  ],
  ["TOOL_CALL_START", { content: "TOOL_CALL_ARGS", end: "TOOL_CALL_END", idField: "toolCallId" }],
  [
    "REASONING_MESSAGE_START",
    { content: "REASONING_MESSAGE_CONTENT", end: "REASONING_MESSAGE_END", idField: "messageId" },
  ],
]);

const GROUP_KEYS: ReadonlySet<string> = new Set([
  "accumulated_content",
  "fragment_count",
  "end_event",
]);

/** Undefined when the event is not in the grouped form. */
export function splitGroup(eventType: string, payload: Payload): SplitGroup | undefined {
  const kind = KINDS.get(eventType);
  if (kind === undefined || !Object.hasOwn(payload.value, "fragment_count")) return undefined;
  const violations = groupViolations(payload.value);
  if (violations.length > 0) return { ok: false, violations };

  const members = memberSpans(payload.text);
  const fragments = Number(payload.value["fragment_count"]); // The check above guarantees a number.
  const end = endOf(kind, payload, members);
  if (end?.ok === false) return end;
  const isGroupKey = members.map(({ key }) => GROUP_KEYS.has(key));
  const start = applyEdits(payload.text, dropEdits(members, isGroupKey));
  const content =
    fragments > 0
      ? { ...part(kind.content, contentText(kind, payload.text, members)), eventCount: fragments }
      : undefined;
  return {
    ok: true,
    group: {
      start: part(eventType, start),
      content,
      end: end?.part,
      eventCount: 1 + fragments + (end === undefined ? 0 : 1),
    },
  };
}

/** A violation of an END event, with its path in the group. */
export function inEndEvent({ field, description }: Violation): Violation {
  return { field: moved(field), description: moved(description) };
}

function moved(words: string): string {
  return words.replaceAll(/\bpayload\b/g, "payload.end_event");
}

type EndOf =
  | { readonly ok: true; readonly part: Part }
  | { readonly ok: false; readonly violations: readonly Violation[] };

function endOf(kind: Kind, payload: Payload, members: readonly Member[]): EndOf | undefined {
  if (isNothing(payload.value["end_event"])) return undefined;
  const read = readPayload(textOf(payload.text, members, "end_event"));
  if (!read.ok) return { ok: false, violations: [inEndEvent(read.violation)] };
  return { ok: true, part: { eventType: kind.end, payload: read.payload, eventCount: 1 } };
}

function groupViolations(value: JsonObject): readonly Violation[] {
  const { fragment_count: count, accumulated_content: content, end_event: end } = value;
  const violations: Violation[] = [];
  const refuse = (key: string, rule: string): void => {
    violations.push({ field: `payload.${key}`, description: `payload.${key} must be ${rule}` });
  };
  const countMax = EVENT_COUNT_MAX - 2; // START and END count too.
  if (!Number.isInteger(count) || Number(count) < 0 || Number(count) > countMax)
    refuse("fragment_count", `an integer from 0 to ${countMax}`);
  if (!isNothing(content) && typeof content !== "string")
    refuse("accumulated_content", "a string, or left out");
  else if (count === 0 && !isNothing(content) && content !== "")
    refuse("accumulated_content", "left out where fragment_count is 0");
  if (!isNothing(end) && !isObject(end)) refuse("end_event", "an object, or left out");
  return violations;
}

function isNothing(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

function part(eventType: string, text: string): Part {
  return { eventType, payload: { text, value: parseObject(text) }, eventCount: 1 };
}

/** The ids in the START's own spelling: they are normalised like those of any event. */
function contentText(kind: Kind, text: string, members: readonly Member[]): string {
  const ids = [kind.idField, "subagentRunId"].flatMap((field) => [field, snakeName(field)]);
  const copied = members
    .filter(({ key }) => ids.includes(key))
    .map(({ keySpan, valueSpan }) => text.slice(keySpan.start, valueSpan.end));
  const delta = textOf(text, members, "accumulated_content");
  // Absent or null: all fragments were empty.
  const printedDelta = delta.startsWith('"') ? delta : '""';
  return `{${[`"type":"${kind.content}"`, ...copied, `"delta":${printedDelta}`].join(",")}}`;
}

function textOf(text: string, members: readonly Member[], key: string): string {
  const span = members.find((member) => member.key === key)?.valueSpan;
  return span === undefined ? "" : text.slice(span.start, span.end);
}
