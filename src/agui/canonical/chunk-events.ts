/**
 * What a CHUNK stands for: a START when it begins something, and a fragment. As @ag-ui/client 1.0.0
 * has it: what the START does not say rides on the fragment, metadata on both, so that it arrives
 * where only one of the two is there. Unlike there, each keeps the chunk's timestamp.
 */
import type { JsonObject } from "../json.ts";
import { without } from "./event.ts";
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
  /** The subagent of what it goes on with. */
  readonly owner: string | undefined;
  /** It comes after a START of the same chunk, which has said what there was. */
  readonly isFirst: boolean;
}

/** Undefined: the chunk says nothing. */
export function fragmentOfChunk(
  kind: ChunkedKind,
  chunk: JsonObject,
  { id, owner, isFirst }: ChunkFragment,
): JsonObject | undefined {
  const { fragment, idField } = KINDS[kind];
  const rest = without(chunk, ...OPENING_FIELDS[kind], "type", idField);
  const isCarrier = isFirst
    ? chunk["delta"] !== undefined || chunk["rawEvent"] !== undefined
    : Object.keys(rest).some((field) => field !== "timestamp" && field !== "subagentRunId");
  if (!isCarrier && !(isFirst && hasUnknown(rest))) return undefined;
  const attributed = owner === undefined ? {} : { subagentRunId: owner };
  return { type: fragment, [idField]: id, delta: "", ...attributed, ...rest };
}

/** A field of no version, which has nowhere else to go. */
function hasUnknown(rest: JsonObject): boolean {
  return Object.keys(rest).some((field) => !OF_BOTH.some((known) => known === field));
}
