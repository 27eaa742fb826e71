/** Canonical events and their parts: the kinds of constructs, and the events that a CHUNK stands for. */
import { CATALOGUE, type CatalogueEntry, type ConstructKind } from "../catalogue.ts";
import { type JsonObject, textOf } from "../json.ts";

/** A stored row (a merged one as one event), or one of the events that a merged row stands for. */
export interface LoggedEvent {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly conformant: boolean;
}

export interface CanonicalEvent {
  readonly value: JsonObject;
  /** The stored bytes, if the event is exactly the stored one. */
  readonly text: string | undefined;
  /** False: outside of every run, or clients could not follow it; only transcripts use it. */
  readonly inRun: boolean;
  /** A RUN_STARTED whose input may repeat the conversation under new ids. */
  readonly isUnsure?: boolean;
}

/** Collects the events that one logged event becomes. */
export class EventCollector {
  readonly events: CanonicalEvent[] = [];
  readonly #inRun: boolean;
  readonly #cause: JsonObject;

  /** `cause` is the logged event. */
  constructor(cause: JsonObject, { inRun }: { readonly inRun: boolean }) {
    this.#cause = cause;
    this.#inRun = inRun;
  }

  add(value: JsonObject, text?: string): void {
    this.events.push({ value, text, inRun: this.#inRun });
  }

  addForTranscripts(value: JsonObject): void {
    this.events.push({ value, text: undefined, inRun: false });
  }

  /** An event that was not logged: it gets the time of the event that needs it. */
  timed(value: JsonObject): JsonObject {
    const { timestamp } = this.#cause;
    return timestamp === undefined ? value : { ...value, timestamp };
  }
}

/** Clients know only the events of the protocol by name; any other event goes out as CUSTOM. */
export function customOf(name: string, value: JsonObject): JsonObject {
  const { timestamp } = value;
  return { type: "CUSTOM", name, value, ...(typeof timestamp === "number" && { timestamp }) };
}

/** The subagent that an event names; the field of a stored row may hold any value. */
export function tagOf(value: JsonObject): string | undefined {
  return textOf(value["subagentRunId"]);
}

export function without(value: JsonObject, ...fields: readonly string[]): JsonObject {
  if (!fields.some((field) => Object.hasOwn(value, field))) return value;
  return Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)));
}

/** The kinds of constructs that a client can have open: thinking has become reasoning. */
export type OpenKind = Exclude<ConstructKind, "run" | "thinking" | "thinking_message">;

export const KINDS = {
  step: kindOf("step"),
  text: kindOf("text", { role: "assistant" }),
  tool_call: kindOf("tool_call", { toolCallName: "unknown" }),
  reasoning: kindOf("reasoning"),
  reasoning_message: kindOf("reasoning_message", { role: "reasoning" }),
  subagent: kindOf("subagent"),
} as const satisfies Record<OpenKind, unknown>;

/** `started`: the fields, apart from the id, of a START that was not logged. */
function kindOf(kind: OpenKind, started: JsonObject = {}) {
  const entries = CATALOGUE.filter((entry) => entry.kind === kind);
  const typeOf = (does: CatalogueEntry["role"]) => entries.find(({ role }) => role === does)?.type;
  const [start, fragment, end] = [typeOf("start"), typeOf("fragment"), typeOf("end")];
  return { start, fragment, end, idField: entries[0]?.idField ?? "messageId", started };
}

export function isOpenKind(kind: ConstructKind | undefined): kind is OpenKind {
  return kind !== undefined && Object.hasOwn(KINDS, kind);
}

/** Chunk fields that only a START has, by kind; other kinds have no chunks. */
const OPENING_FIELDS: Readonly<Partial<Record<OpenKind, readonly string[]>>> = {
  text: ["role", "name"],
  tool_call: ["toolCallName", "parentMessageId"],
};

const OF_BOTH = ["timestamp", "metadata", "subagentRunId"] as const;

/**
 * Fields that the START cannot carry go on the fragment, and metadata on both, as in @ag-ui/client
 * 1.0.0. Unlike there, each event keeps the chunk's timestamp.
 */
export function startOfChunk(kind: OpenKind, id: string, chunk: JsonObject): JsonObject {
  const { start, idField, started } = KINDS[kind];
  const opening = OPENING_FIELDS[kind] ?? [];
  const present = [...opening, ...OF_BOTH].filter((field) => chunk[field] !== undefined);
  const fields = Object.fromEntries(present.map((field) => [field, chunk[field]]));
  return { type: start, [idField]: id, ...started, ...fields };
}

interface ChunkFragment {
  readonly id: string;
  /** The subagent of the construct that the fragment continues. */
  readonly owner: string | undefined;
  /** True after a START of the same chunk, which already carries the other fields. */
  readonly isFirst: boolean;
}

/** Undefined: the chunk has no content. */
export function fragmentOfChunk(
  kind: OpenKind,
  chunk: JsonObject,
  { id, owner, isFirst }: ChunkFragment,
): JsonObject | undefined {
  const { fragment, idField } = KINDS[kind];
  const value: Record<string, unknown> = { type: fragment, [idField]: id, delta: "" };
  if (owner !== undefined) value["subagentRunId"] = owner;
  let isCarrier = false;
  for (const field of Object.keys(chunk)) {
    if (field === "type" || field === idField || OPENING_FIELDS[kind]?.includes(field)) continue;
    if (field === "__proto__") continue; // It cannot be copied.
    value[field] = chunk[field];
    if (field !== "timestamp" && field !== "subagentRunId")
      isCarrier ||= !isFirst || field !== "metadata";
  }
  return isCarrier ? value : undefined;
}
