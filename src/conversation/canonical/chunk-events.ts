/**
 * The events that a CHUNK stands for: a START when the chunk begins something, and a fragment. As
 * in @ag-ui/client 1.0.0, fields that the START cannot carry go on the fragment, and metadata goes
 * on both, so that it arrives when only one of the two events exists. Unlike there, each event
 * keeps the chunk's timestamp.
 */
import type { JsonObject } from "../../agui/json.ts";
import { KINDS, type OpenKind } from "./construct-kinds.ts";

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

export interface ChunkFragment {
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
