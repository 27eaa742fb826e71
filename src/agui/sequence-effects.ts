/** What each event type means to the order of a session: a table, made from the catalogue. */
import { CATALOGUE, type CatalogueEntry, type ConstructKind, type EventType } from "./catalogue.ts";

/** A bit for each kind of construct, so that what is open by one id is one number. */
export const BITS = {
  run: 0, // Of these one at most is open, and it has no id.
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

/** What a run may end with: 0.0.59 did not mind thinking that is open, and 1.0.0 knows none. */
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
  /** Whose chunks it is that can go on no more. */
  readonly endsChunks: "of_all" | "of_its_owner" | "of_nobody";
}

/** Chunks may go on after these; a chunk itself depends on what it is of. */
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
