/** Stored events as values, and which of them clients can use. */
import { z } from "zod";
import { CATALOGUE, type CatalogueEntry, type EventType } from "../catalogue.ts";
import { isExact } from "../exact-json.ts";
import { isObject, type JsonObject, parseExactObject, parseObject } from "../json.ts";
import { CURRENT } from "../schemas.ts";

/** The numbers of the protocol itself are doubles; all others keep their spelling. */
export function eventIn(payload: string): JsonObject {
  const event = parseObject(payload);
  // Most events have nothing but texts, and those may be long.
  const isText = Object.entries(event).every(
    ([name, one]) => typeof one === "string" || name === "timestamp",
  );
  if (isText || isExact(payload)) return event;
  const value = parseExactObject(payload);
  const { timestamp, usage } = event;
  return {
    ...value,
    ...(timestamp !== undefined && { timestamp }),
    ...(usage !== undefined && { usage }),
  };
}

const MORE: Readonly<Partial<Record<EventType, readonly string[]>>> = {
  RUN_STARTED: ["threadId", "runId"],
  RUN_FINISHED: ["threadId", "runId"],
  RUN_ERROR: ["message"],
  TOOL_CALL_START: ["toolCallName"],
  TOOL_CALL_RESULT: ["messageId"],
  SUBAGENT_STARTED: ["name"],
  SUBAGENT_ERROR: ["message"],
};

const OPTIONAL_ID: ReadonlySet<string> = new Set<EventType>([
  "TEXT_MESSAGE_CHUNK",
  "TOOL_CALL_CHUNK",
  "REASONING_MESSAGE_CHUNK",
]);

/** Fields that must be texts; types that no version has are absent. */
const TEXTS: ReadonlyMap<string, readonly string[]> = new Map(
  CATALOGUE.filter(({ firstVersion }) => firstVersion !== undefined).map((entry) => {
    const { type, idField, fragmentField } = entry;
    const more = MORE[type] ?? [];
    const own = [idField, fragmentField].filter((field) => field !== undefined);
    return [type, OPTIONAL_ID.has(type) ? [] : [...own, ...more]];
  }),
);

/** The schema of the field that holds a patch. */
const PATCHES: ReadonlyMap<string, z.ZodType> = new Map(
  (
    [
      ["STATE_DELTA", "delta"],
      ["ACTIVITY_DELTA", "patch"],
    ] as const
  ).flatMap(([type, field]) => {
    const patch: unknown = CURRENT.get(type)?.shape[field];
    if (!(patch instanceof z.ZodType)) return [];
    const moves = patch.refine((operations) => !movesIntoItself(operations));
    return [[type, z.looseObject({ [field]: moves })] as const];
  }),
);

/** RFC 6902 forbids such a move, no schema does, and it makes a client's state contain itself. */
function movesIntoItself(operations: unknown): boolean {
  if (!Array.isArray(operations)) return false;
  return (operations as readonly unknown[]).some((operation) => {
    if (!isObject(operation)) return false;
    const { op, from, path } = operation;
    return op === "move" && String(path).startsWith(`${String(from)}/`);
  });
}

/**
 * Whether a stored event keeps its type, or goes out as CUSTOM. It needs the fields that the order
 * of events depends on: a row may be older than this service, and an event without its id would end
 * the stream of a session. A patch must be a JSON Patch; before 1.0.0 it could be any list, which
 * clients apply differently, so such a patch changes nothing.
 */
export function isUsable({ type }: CatalogueEntry, value: JsonObject): boolean {
  if (value["type"] !== type) return false;
  if (TEXTS.get(type)?.every((field) => typeof value[field] === "string") !== true) return false;
  return PATCHES.get(type)?.safeParse(value).success ?? true;
}
