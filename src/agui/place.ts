import type { CatalogueEntry, EventType } from "./catalogue.ts";
import type { JsonObject } from "./json.ts";

/** What sequence.ts has to know of an event to tell whether it is in order. */
export interface EventPlace {
  readonly type: EventType;
  /** Tells its construct from others of the kind; undefined: of these one at most is open. */
  readonly key: string | undefined;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
  /** Of a CHUNK: it says all that a START has to say. */
  readonly canStart: boolean;
}

/** Of an event that a version of the protocol accepts. */
export function placeOf({ type, kind, idField }: CatalogueEntry, value: JsonObject): EventPlace {
  const id = idField === undefined ? undefined : textOf(value[idField]);
  const owner = textOf(value["subagentRunId"]);
  const key = kind === "step" ? stepKey(owner, id) : id;
  const isNamed = type !== "TOOL_CALL_CHUNK" || value["toolCallName"] !== undefined;
  return { type, key, owner, canStart: id !== undefined && isNamed };
}

/** A subagent may have steps of the same names as its parent's: they are others. */
function stepKey(owner: string | undefined, name = ""): string {
  return owner === undefined ? `:${name}` : `${owner.length}:${owner}${name}`;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
