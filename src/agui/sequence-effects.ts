/** The effect of each event type on the order of a session: a table, made from the catalogue. */
import { CATALOGUE, type CatalogueEntry, type ConstructKind, type EventType } from "./catalogue.ts";

/** One bit per kind of construct, so that one number holds the kinds that are open under one id. */
export const BITS = {
  run: 0, // At most one run is open, and it needs no id here.
  step: 1,
  text: 2,
  tool_call: 4,
  thinking: 8,
  thinking_message: 16,
  reasoning: 32,
  reasoning_message: 64,
  subagent: 128,
} as const satisfies Record<ConstructKind, number>;

/** A subagent's id is for one invocation: it may not start again in the run. */
export const SUBAGENT_ENDED = 256;

/**
 * The constructs that may be open at the end of a run: 0.0.59 accepted open thinking, and 1.0.0 has
 * none.
 */
export const MAY_STAY_OPEN = BITS.thinking | BITS.thinking_message | SUBAGENT_ENDED;

export interface Effect {
  readonly does:
    | "open_run"
    | "finish_run"
    | "fail_run"
    | "start"
    | "fragment"
    | "chunk"
    | "end"
    | "nothing";
  readonly bit: number;
  /** Whose chunks the event ends. */
  readonly endsChunks: "of_all" | "of_its_owner" | "of_nobody";
}

/** These events do not end chunks; for a chunk, it depends on its construct. */
const END_NO_CHUNKS: ReadonlySet<EventType> = new Set([
  "TEXT_MESSAGE_CHUNK",
  "TOOL_CALL_CHUNK",
  "REASONING_MESSAGE_CHUNK",
  "REASONING_ENCRYPTED_VALUE",
  "ACTIVITY_SNAPSHOT",
  "ACTIVITY_DELTA",
  "SUBAGENT_STARTED",
  "RAW",
]);

export const EFFECTS: ReadonlyMap<EventType, Effect> = new Map(
  CATALOGUE.map((entry) => [
    entry.type,
    {
      does: doesOf(entry),
      bit: entry.kind === undefined ? 0 : BITS[entry.kind],
      endsChunks: endsChunksOf(entry),
    },
  ]),
);

function doesOf({ type, role }: CatalogueEntry): Effect["does"] {
  if (type === "RUN_STARTED") return "open_run";
  if (type === "RUN_FINISHED") return "finish_run";
  if (type === "RUN_ERROR") return "fail_run";
  if (role === "fragment") return type.endsWith("_CHUNK") ? "chunk" : "fragment";
  return role === "whole" ? "nothing" : role;
}

function endsChunksOf({ type, category }: CatalogueEntry): Effect["endsChunks"] {
  if (category === "run" || type === "MESSAGES_SNAPSHOT") return "of_all";
  return END_NO_CHUNKS.has(type) ? "of_nobody" : "of_its_owner";
}
