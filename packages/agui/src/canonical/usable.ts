/** Stored events as values, and which of them clients can use. */
import { CATALOGUE, type CatalogueEntry, type EventType } from "../catalogue.ts";
import { isExact } from "../exact-json.ts";
import { isObject, type JsonObject, parseExactObject, parseObject } from "../json.ts";

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

/** The field that holds a patch. */
const PATCHES: Readonly<Partial<Record<EventType, string>>> = {
  STATE_DELTA: "delta",
  ACTIVITY_DELTA: "patch",
};

/** The fields of an operation besides `path`, which is a pointer; `from` is one too. */
const OPERATIONS: ReadonlyMap<unknown, "from" | "value" | undefined> = new Map([
  ["add", "value"],
  ["remove", undefined],
  ["replace", "value"],
  ["move", "from"],
  ["copy", "from"],
  ["test", "value"],
] as const);
const POINTER = /^(\/([^/~]|~[01])*)*$/;

/**
 * Whether @ag-ui/core's schema accepts the patch. It is written here, because the inspector reads
 * patches and its first load has no room for schemas; packages/agui/test/usable.property.test.ts
 * compares the two. RFC 6902 also forbids a move into itself, no schema does, and it makes a client's
 * state contain itself.
 */
function isPatch(operations: unknown): boolean {
  if (!Array.isArray(operations)) return false;
  return (operations as readonly unknown[]).every((operation) => {
    if (!isObject(operation)) return false;
    const { op, from, path } = operation;
    const field = OPERATIONS.get(op);
    if (!OPERATIONS.has(op) || !isPointer(path)) return false;
    if (field === "value") return operation["value"] !== undefined;
    return (
      field === undefined || (isPointer(from) && !(op === "move" && path.startsWith(`${from}/`)))
    );
  });
}

function isPointer(value: unknown): value is string {
  return typeof value === "string" && POINTER.test(value);
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
  const patch = PATCHES[type];
  return patch === undefined || isPatch(value[patch]);
}
