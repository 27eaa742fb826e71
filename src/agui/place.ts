import type { CatalogueEntry, EventType } from "./catalogue.ts";
import type { JsonObject } from "./json.ts";

/** The facts about an event that sequence.ts needs to check its order. */
export interface EventPlace {
  readonly type: EventType;
  /**
   * Identifies its construct within the kind; undefined: at most one construct of the kind is open.
   */
  readonly key: string | undefined;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
  /** For a CHUNK: it has all fields that a START needs. */
  readonly canStart: boolean;
}

/** For an event that a version of the protocol accepts. */
export function placeOf({ type, kind, idField }: CatalogueEntry, value: JsonObject): EventPlace {
  const id = idField === undefined ? undefined : textOf(value[idField]);
  const owner = textOf(value["subagentRunId"]);
  const key = kind === "step" ? stepKey(owner, id) : id;
  const isNamed = type !== "TOOL_CALL_CHUNK" || value["toolCallName"] !== undefined;
  return { type, key, owner, canStart: id !== undefined && isNamed };
}

/** A subagent may have steps with the same names as its parent's; they are different steps. */
function stepKey(owner: string | undefined, name = ""): string {
  return owner === undefined ? `:${name}` : `${owner.length}:${owner}${name}`;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
