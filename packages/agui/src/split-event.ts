import type { Violation } from "@session-ledger/base/errors";
import { ID_BYTES_MAX, type RunMark } from "@session-ledger/base/ids";
import { type CatalogueEntry, checkEventCount, EVENT_COUNT_MAX } from "./catalogue.ts";
import { type AcceptedEvent, validateEvent, type ValidationMode } from "./validate.ts";
import { type EventAddress, addressOf } from "./constructs.ts";
import { snakeName } from "./normalise.ts";
import { isNothing, isObject, type JsonObject, parseObject } from "./json.ts";
import { type Payload, readPayload } from "./payload.ts";
import { isGraphQuestion, outcomeOf } from "./run-end.ts";
import { applyEdits, dropEdits, type Member, memberSpans } from "./spans.ts";

/** The fields of a push that AG-UI needs. */
interface EventPush {
  readonly eventType: string;
  readonly payload: string;
  /** 0 means "not given". */
  readonly eventCount: number;
  readonly createdAtMicros: bigint | undefined;
  readonly completedAtMicros: bigint | undefined;
  readonly hasFragments: boolean;
}

export interface ValidatedEvent {
  readonly eventType: string;
  readonly payload: string;
  readonly eventCount: number;
  readonly createdAtMicros: bigint;
  readonly completedAtMicros: bigint | undefined;
  readonly conformant: boolean;
  readonly mark: RunMark | undefined;
  /** Only of raw events; undefined for an event that no version of the protocol accepts. */
  readonly address: EventAddress | undefined;
  /** The name from another vocabulary that a field of the event had. */
  readonly renamed?: string | undefined;
}

export interface SplitOptions {
  readonly mode: ValidationMode;
  readonly nowMicros: bigint;
}

type SplitResult =
  | { readonly ok: true; readonly rows: readonly [ValidatedEvent, ...ValidatedEvent[]] }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** The rows of a push: one, except for the grouped form. */
export function splitEvent(push: EventPush, options: SplitOptions): SplitResult {
  if (push.eventType === "")
    return refused([{ field: "event_type", description: "event_type is required" }]);
  const read = readPayload(push.payload);
  return read.ok
    ? rowsOf(push, read.payload, { ...options, isRaw: false })
    : refused([...checkTimes(push), read.violation]);
}

interface UntypedEvent {
  /** Empty: the payload has the type. */
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
}

/** The rows of a raw event: one, except for the grouped form. */
export function splitRawEvent(event: UntypedEvent, mode: ValidationMode): SplitResult {
  const read = readPayload(event.payload);
  if (!read.ok) return refused([read.violation]);
  const { type } = read.payload.value;
  const eventType = event.eventType === "" && typeof type === "string" ? type : event.eventType;
  if (eventType === "") {
    const description = "event_type is required where the payload has no type";
    return refused([{ field: "event_type", description }]);
  }
  const push = { ...event, eventType, eventCount: 0, completedAtMicros: undefined };
  const options = { mode, nowMicros: event.createdAtMicros, isRaw: true };
  return rowsOf({ ...push, hasFragments: false }, read.payload, options);
}

interface RowOptions extends SplitOptions {
  readonly isRaw: boolean;
}

function rowsOf(push: EventPush, payload: Payload, options: RowOptions): SplitResult {
  const kind = KINDS.get(push.eventType);
  const isGroup = kind !== undefined && Object.hasOwn(payload.value, "fragment_count");
  const split = isGroup ? splitGroup(push.eventType, kind, payload) : undefined;
  const violations = [...checkTimes(push)];
  if (split?.ok === false) return refused([...violations, ...split.violations]);

  const { eventType, eventCount, completedAtMicros } = push;
  // Without a given time: now, unless the event was completed earlier.
  const isPast = completedAtMicros !== undefined && completedAtMicros < options.nowMicros;
  const createdAtMicros = push.createdAtMicros ?? (isPast ? completedAtMicros : options.nowMicros);
  const times = { createdAtMicros, completedAtMicros };
  let parts: readonly TimedPart[];
  if (split === undefined) {
    const wrongCount = checkEventCount(eventType, eventCount);
    if (wrongCount !== undefined) violations.push(wrongCount);
    parts = [{ eventType, payload, eventCount: eventCount || 1, ...times, isEndEvent: false }];
  } else {
    violations.push(...checkGroup(push, split.group));
    parts = timedParts(split.group, times);
  }
  const rows: ValidatedEvent[] = [];
  for (const part of parts) {
    const result = validateEvent(part.eventType, part.payload, options.mode);
    if (result.ok) {
      const row = rowOf(part, result, options);
      rows.push(row);
      const tooLong = row.mark?.kind === "open" ? checkRunId(row.mark.runId) : undefined;
      if (tooLong !== undefined) violations.push(tooLong);
    } else if (part.isEndEvent) violations.push(...result.violations.map(inEndEvent));
    else violations.push(...result.violations);
  }
  const [first, ...others] = rows;
  if (violations.length > 0 || first === undefined) return refused(violations);
  return { ok: true, rows: [first, ...others] };
}

interface GroupTimes {
  readonly createdAtMicros: bigint;
  readonly completedAtMicros: bigint | undefined;
}

/** An event that will become a row. */
interface TimedPart extends GroupPart, GroupTimes {
  readonly isEndEvent: boolean;
}

/** START and CONTENT get the group's begin, CONTENT and END its completion. */
function timedParts(
  { start, content, end }: EventGroup,
  { createdAtMicros, completedAtMicros }: GroupTimes,
): readonly TimedPart[] {
  const parts: TimedPart[] = [
    { ...start, createdAtMicros, completedAtMicros: undefined, isEndEvent: false },
  ];
  if (content !== undefined)
    parts.push({ ...content, createdAtMicros, completedAtMicros, isEndEvent: false });
  if (end !== undefined) {
    const endedAtMicros = completedAtMicros ?? createdAtMicros;
    const times = { createdAtMicros: endedAtMicros, completedAtMicros: undefined };
    parts.push({ ...end, ...times, isEndEvent: true });
  }
  return parts;
}

function rowOf(
  part: TimedPart,
  { payload, entry, renamed }: AcceptedEvent,
  { isRaw }: RowOptions,
): ValidatedEvent {
  return {
    eventType: part.eventType,
    payload: payload.text,
    eventCount: part.eventCount,
    createdAtMicros: part.createdAtMicros,
    completedAtMicros: part.completedAtMicros,
    conformant: entry !== undefined,
    mark: entry && markOf(entry, payload),
    address: isRaw && entry ? addressOf(entry, payload.value) : undefined,
    ...(renamed === undefined ? {} : { renamed }),
  };
}

function markOf({ kind, type, role }: CatalogueEntry, { value }: Payload): RunMark | undefined {
  if (type === "CUSTOM") return isGraphQuestion(value) ? { kind: "ask" } : undefined;
  if (kind !== "run") return undefined;
  if (role === "end") return { kind: "close", outcome: outcomeOf(value) };
  const runId = String(value["runId"]); // The field is a string in every version.
  return { kind: "open", runId: runId.toWellFormed().replaceAll("\0", "\uFFFD") };
}

/** Applies in lenient mode too: each row of the run would store a run id that is too long. */
function checkRunId(runId: string): Violation | undefined {
  if (runId.length * 3 <= ID_BYTES_MAX) return undefined;
  if (new TextEncoder().encode(runId).length <= ID_BYTES_MAX) return undefined;
  const description = `payload.runId must have at most ${ID_BYTES_MAX} bytes`;
  return { field: "payload.runId", description };
}

function checkTimes({ createdAtMicros, completedAtMicros }: EventPush): readonly Violation[] {
  if (createdAtMicros === undefined || completedAtMicros === undefined) return [];
  if (completedAtMicros >= createdAtMicros) return [];
  return [{ field: "completed_at", description: "completed_at must not be before created_at" }];
}

function checkGroup(
  { eventCount, hasFragments }: EventPush,
  group: EventGroup,
): readonly Violation[] {
  const violations: Violation[] = [];
  if (eventCount !== 0 && eventCount !== group.eventCount) {
    const sum = `${group.eventCount}, the events of the group, or left out`;
    const description = `event_count must be ${sum}, but is ${eventCount}`;
    violations.push({ field: "event_count", description });
  }
  if (hasFragments)
    violations.push({ field: "fragments", description: "fragments must be absent in a group" });
  return violations;
}

/** One violation per field: the parts of a group share the faults of their ids. */
function refused(violations: readonly Violation[]): SplitResult {
  const isFirst = ({ field }: Violation, index: number): boolean =>
    violations.findIndex((other) => other.field === field) === index;
  return { ok: false, violations: violations.filter(isFirst) };
}

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

interface GroupPart {
  readonly eventType: string;
  readonly payload: Payload;
  readonly eventCount: number;
}

/** The parts are events that are not normalised or validated yet. */
interface EventGroup {
  readonly start: GroupPart;
  /** Undefined when the group has no fragment. */
  readonly content: GroupPart | undefined;
  /** Undefined when the construct was not ended. */
  readonly end: GroupPart | undefined;
  /** The number of events that the group stands for. */
  readonly eventCount: number;
}

type SplitGroup =
  | { readonly ok: true; readonly group: EventGroup }
  | { readonly ok: false; readonly violations: readonly Violation[] };

interface GroupKind {
  readonly content: string;
  readonly end: string;
  readonly idField: string;
}

const KINDS: ReadonlyMap<string, GroupKind> = new Map([
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

function splitGroup(eventType: string, kind: GroupKind, payload: Payload): SplitGroup {
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
      ? { ...partOf(kind.content, contentText(kind, payload.text, members)), eventCount: fragments }
      : undefined;
  return {
    ok: true,
    group: {
      start: partOf(eventType, start),
      content,
      end: end?.part,
      eventCount: 1 + fragments + (end === undefined ? 0 : 1),
    },
  };
}

/** A violation of an END event, with its path in the group. */
function inEndEvent({ field, description }: Violation): Violation {
  return { field: moved(field), description: moved(description) };
}

function moved(words: string): string {
  return words.replaceAll(/\bpayload\b/g, "payload.end_event");
}

type EndOf =
  | { readonly ok: true; readonly part: GroupPart }
  | { readonly ok: false; readonly violations: readonly Violation[] };

function endOf(kind: GroupKind, payload: Payload, members: readonly Member[]): EndOf | undefined {
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

function partOf(eventType: string, text: string): GroupPart {
  return { eventType, payload: { text, value: parseObject(text) }, eventCount: 1 };
}

/** The ids in the START's own spelling: they are normalised like those of any event. */
function contentText(kind: GroupKind, text: string, members: readonly Member[]): string {
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
