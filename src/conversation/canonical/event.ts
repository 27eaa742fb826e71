/** Canonical events and their parts: the kinds of constructs, and the events that a CHUNK stands for. */
import type { ConstructKind } from "../../agui/catalogue.ts";
import type { JsonObject } from "../../agui/json.ts";

/** A stored row (a merged one as one event), or one of the events that a merged row stands for. */
export interface LoggedEvent {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly conformant: boolean;
}

export interface CanonicalEvent {
  /** An AG-UI event with its type. */
  readonly value: JsonObject;
  /** The stored bytes, if the event is exactly the stored one. */
  readonly text: string | undefined;
  /**
   * False: the event lies outside every run, where a client accepts nothing; only transcripts use
   * it.
   */
  readonly inRun: boolean;
}

/** Collects the events that one logged event becomes. */
export class Outgoing {
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

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The subagent that an event names; the field of a stored row may hold any value. */
export function tagOf(value: JsonObject): string | undefined {
  return textOf(value["subagentRunId"]);
}

export function without(value: JsonObject, ...fields: readonly string[]): JsonObject {
  if (!fields.some((field) => Object.hasOwn(value, field))) return value;
  return Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)));
}

/** The constructs a client can have open, after translation: thinking has become reasoning. */

export type OpenKind = Exclude<ConstructKind, "run" | "thinking" | "thinking_message">;

interface KindOfConstruct {
  readonly start: string;
  readonly end: string;
  readonly idField: "stepName" | "messageId" | "toolCallId" | "subagentRunId";
  /** The event that carries its text; undefined: the construct has no text. */
  readonly fragment: string | undefined;
  /** The fields of a START besides its id, for a START that was not logged. */
  readonly started: JsonObject;
}

export function isOpenKind(kind: ConstructKind | undefined): kind is OpenKind {
  return kind !== undefined && Object.hasOwn(KINDS, kind);
}

export const KINDS = {
  step: {
    start: "STEP_STARTED",
    end: "STEP_FINISHED",
    idField: "stepName",
    fragment: undefined,
    started: {},
  },
  text: {
    start: "TEXT_MESSAGE_START",
    end: "TEXT_MESSAGE_END",
    idField: "messageId",
    fragment: "TEXT_MESSAGE_CONTENT",
    started: { role: "assistant" },
  },
  tool_call: {
    start: "TOOL_CALL_START",
    end: "TOOL_CALL_END",
    idField: "toolCallId",
    fragment: "TOOL_CALL_ARGS",
    started: { toolCallName: "unknown" },
  },
  reasoning: {
    start: "REASONING_START",
    end: "REASONING_END",
    idField: "messageId",
    fragment: undefined,
    started: {},
  },
  reasoning_message: {
    start: "REASONING_MESSAGE_START",
    end: "REASONING_MESSAGE_END",
    idField: "messageId",
    fragment: "REASONING_MESSAGE_CONTENT",
    started: { role: "reasoning" },
  },
  subagent: {
    start: "SUBAGENT_STARTED",
    end: "SUBAGENT_FINISHED",
    idField: "subagentRunId",
    fragment: undefined,
    started: {},
  },
} as const satisfies Record<OpenKind, KindOfConstruct>;

/**
 * The events that a CHUNK stands for: a START when the chunk begins something, and a fragment. As
 * in @ag-ui/client 1.0.0, fields that the START cannot carry go on the fragment, and metadata goes
 * on both, so that it arrives when only one of the two events exists. Unlike there, each event
 * keeps the chunk's timestamp.
 */

export type ChunkedKind = Extract<OpenKind, "text" | "tool_call" | "reasoning_message">;

const CHUNKED: Readonly<Record<string, ChunkedKind>> = {
  TEXT_MESSAGE_CHUNK: "text",
  TOOL_CALL_CHUNK: "tool_call",
  REASONING_MESSAGE_CHUNK: "reasoning_message",
};

/** Chunk fields that only a START has. */
const OPENING_FIELDS: Readonly<Record<ChunkedKind, readonly string[]>> = {
  text: ["role", "name"],
  tool_call: ["toolCallName", "parentMessageId"],
  reasoning_message: [],
};

const OF_BOTH = ["timestamp", "metadata", "subagentRunId"] as const;

/** Fields that are not copied to the fragment; the last one cannot be copied. */
const SAID_BY_START: Readonly<Record<ChunkedKind, ReadonlySet<string>>> = {
  text: new Set(["type", "messageId", ...OPENING_FIELDS.text, "__proto__"]),
  tool_call: new Set(["type", "toolCallId", ...OPENING_FIELDS.tool_call, "__proto__"]),
  reasoning_message: new Set(["type", "messageId", "__proto__"]),
};

export function chunkedKind(eventType: string): ChunkedKind | undefined {
  return CHUNKED[eventType];
}

export function startOfChunk(kind: ChunkedKind, id: string, chunk: JsonObject): JsonObject {
  const { start, idField, started } = KINDS[kind];
  const said = [...OPENING_FIELDS[kind], ...OF_BOTH].filter((field) => chunk[field] !== undefined);
  const fields = Object.fromEntries(said.map((field) => [field, chunk[field]]));
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
  kind: ChunkedKind,
  chunk: JsonObject,
  { id, owner, isFirst }: ChunkFragment,
): JsonObject | undefined {
  const { fragment, idField } = KINDS[kind];
  const value: Record<string, unknown> = { type: fragment, [idField]: id, delta: "" };
  if (owner !== undefined) value["subagentRunId"] = owner;
  let isCarrier = false;
  for (const field of Object.keys(chunk)) {
    if (SAID_BY_START[kind].has(field)) continue;
    value[field] = chunk[field];
    if (field !== "timestamp" && field !== "subagentRunId")
      isCarrier ||= !isFirst || field !== "metadata";
  }
  return isCarrier ? value : undefined;
}
