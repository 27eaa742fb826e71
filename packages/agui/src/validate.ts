import { AgentCapabilitiesSchema } from "@ag-ui/core/schemas";
import type { Violation } from "@session-ledger/base/errors";
import { nearest } from "@session-ledger/base/nearest";
import { CATALOGUE, type CatalogueEntry, type EventType, lookup } from "./catalogue.ts";
import { isObject, type JsonObject, printedWord } from "./json.ts";
import { normalise, type Normalised } from "./normalise.ts";
import { type Payload, readPayload } from "./payload.ts";
import { CURRENT, EARLIER } from "./schemas.ts";
import { fieldsAtFault, type Issue, violationsOf } from "./violations.ts";
import type { z } from "zod";

/** The treatment of an event that no version of the protocol accepts. */
export type ValidationMode =
  /** The event is refused. */
  | "strict"
  /** The event is refused, and so is an event that 1.0.0 does not accept. */
  | "exact"
  /** The event is stored unchanged, and marked. */
  | "lenient";

/** Types outside the catalogue that lenient mode stores; served as CUSTOM, by this name. */
const FOREIGN_TYPE = /^[A-Z][A-Z0-9_]{0,63}$/;

export interface AcceptedEvent {
  readonly payload: Payload;
  /** The type under which clients of some version know the event; undefined: no client knows it. */
  readonly entry: CatalogueEntry | undefined;
  /** The name from another vocabulary that a field had. */
  readonly renamed?: string | undefined;
}

type ValidationResult =
  | ({ readonly ok: true } & AcceptedEvent)
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** Normalises and validates. An event that only lenient mode accepts is stored unchanged. */
export function validateEvent(
  eventType: string,
  payload: Payload,
  mode: ValidationMode,
): ValidationResult {
  const entry = lookup(eventType);
  const result = entry === undefined ? foreign(eventType, mode) : accept(entry, payload, mode);
  // META is a draft and in no version: it is accepted, and no client knows it by that name.
  if (result.ok) {
    const { payload: accepted, renamed } = result;
    return { ok: true, payload: accepted, entry: entry?.firstVersion && entry, renamed };
  }
  if (mode === "lenient" && (entry !== undefined || FOREIGN_TYPE.test(eventType)))
    return { ok: true, payload, entry: undefined };
  return result;
}

function accept(entry: CatalogueEntry, payload: Payload, mode: ValidationMode): Normalised {
  const payloadType = payload.value["type"];
  if (payloadType !== undefined && payloadType !== entry.type)
    return refused("payload.type", `payload.type must be ${entry.type}, as event_type is`);
  const normalised = normalise(entry.type, payload);
  if (!normalised.ok) return normalised;
  const judge = mode === "exact" ? violationsInCurrent : violationsIn;
  const violations = judge(entry.type, normalised.payload.value);
  return violations.length > 0 ? { ok: false, violations } : normalised;
}

function foreign(eventType: string, mode: ValidationMode): Normalised {
  const allowed = mode !== "lenient" ? "an AG-UI event type" : `like ${FOREIGN_TYPE.source}`;
  const problem = `event_type must be ${allowed}, but is ${printedWord(eventType)}`;
  const spelling = protocolSpelling(eventType);
  const meant = lookup(spelling)?.type ?? nearest(spelling, NAMES);
  return refused(
    "event_type",
    `${problem}; ${meant === undefined ? TYPES : `did you mean ${meant}?`}`,
  );
}

/** `textMessageStart`, `text-message-start` and `text_message_start` are all TEXT_MESSAGE_START. */
function protocolSpelling(eventType: string): string {
  return eventType
    .slice(0, 64)
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[ .-]/g, "_")
    .toUpperCase();
}

/** All types but the draft META. */
const NAMES = CATALOGUE.filter(({ firstVersion }) => firstVersion !== undefined).map(
  ({ type }) => type,
);

/** Shortened as `RUN_{STARTED,FINISHED,ERROR}` to fit an answer. */
const TYPES = `the types are ${[
  ...Map.groupBy(NAMES, (type) => type.slice(0, type.lastIndexOf("_") + 1)),
]
  .flatMap(([start, types]) => {
    const ends = types.map((type) => type.slice(start.length));
    return start === "" || ends.length === 1 ? types : [`${start}{${ends.join(",")}}`];
  })
  .join(", ")}`;

function refused(field: string, description: string): Normalised {
  return { ok: false, violations: [{ field, description }] };
}

/** Why every version of the protocol refuses the event; empty when one version accepts it. */
export function violationsIn(type: EventType, value: JsonObject): readonly Violation[] {
  const [current, earlier] = [CURRENT.get(type), EARLIER.get(type)];
  const now = current && issuesOf(current, value);
  if (now?.length === 0) return [];
  const before = earlier && issuesOf(earlier, value);
  if (before === undefined || before.length === 0) return [];
  // Faults that only 1.0.0 reports are left out when every version has faults.
  const violations = violationsOf(now ?? before, value);
  const everywhere = fieldsAtFault(before);
  const common = violations.filter(({ field }) => everywhere.has(field));
  if (common.length > 0) return common;
  // For a long list the checks may stop in different parts; the earlier versions then decide.
  return longList(value) !== undefined ? violationsOf(before, value) : violations;
}

/** The reasons why 1.0.0 refuses the event. */
function violationsInCurrent(type: EventType, value: JsonObject): readonly Violation[] {
  const current = CURRENT.get(type);
  if (current !== undefined) return violationsOf(issuesOf(current, value), value);
  return [{ field: "event_type", description: `event_type ${type} is not in AG-UI 1.0` }];
}

/** Why AG-UI 1.0 refuses the capabilities of an agent; empty when it accepts them. */
export function validateCapabilities(text: string): readonly Violation[] {
  const read = readPayload(text, "capabilities");
  if (!read.ok) return [read.violation];
  const { value } = read.payload;
  return violationsOf(issuesOf(AgentCapabilitiesSchema, value), value, "capabilities");
}

/** Elements of a list that are checked in one part. */
const PART = 1_000;

/** zod's own messages are never shown, and to compose one takes longer than to find the issue. */
const UNWORDED = { error: () => "Invalid input" };

/**
 * The faults of an event by its schema; none: accepted. zod makes an issue for every wrong element:
 * a megabyte of `{}` as messages gives 350,000, and blocks all other work for a second. So a long
 * list is checked in parts, and the first part with an issue is the last.
 */
function issuesOf(schema: z.ZodObject, value: JsonObject): readonly Issue[] {
  const long = longList(value);
  if (long === undefined) return schema.safeParse(value, UNWORDED).error?.issues ?? [];
  const { path, list } = long;
  for (let start = 0; start < list.length; start += PART) {
    const part = withList(value, path, list.slice(start, start + PART));
    const { error } = schema.safeParse(part, UNWORDED);
    if (error !== undefined) return error.issues.map((issue) => moved(issue, path, start));
  }
  return [];
}

type ListPath = readonly [string] | readonly [string, string];

interface LongList {
  readonly path: ListPath;
  readonly list: readonly unknown[];
}

/** The longest list of the event, or of an object in it, such as the messages of a run's input. */
function longList(value: JsonObject): LongList | undefined {
  let found: LongList | undefined;
  let lengthMax = PART;
  for (const key of Object.keys(value)) {
    const field = value[key];
    const inner = isObject(field) ? field : undefined;
    for (const name of inner === undefined ? [key] : Object.keys(inner)) {
      const list = inner === undefined ? field : inner[name];
      if (!Array.isArray(list) || list.length <= lengthMax) continue;
      found = { path: inner === undefined ? [key] : [key, name], list };
      lengthMax = list.length;
    }
  }
  return found;
}

function withList(value: JsonObject, [key, inner]: ListPath, list: readonly unknown[]): JsonObject {
  const field = value[key];
  return { ...value, [key]: inner === undefined ? list : { ...Object(field), [inner]: list } };
}

/** An issue of a part, with its index in the whole list. */
function moved(issue: Issue, list: ListPath, by: number): Issue {
  const at = issue.path[list.length];
  const isInside = list.every((key, depth) => issue.path[depth] === key);
  if (!isInside || typeof at !== "number") return issue;
  return { ...issue, path: issue.path.with(list.length, at + by) };
}
