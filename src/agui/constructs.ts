/**
 * Finds the construct of an event: its kind and id, its effect on the order of a session, and the
 * lanes of the constructs that are made of CHUNKs.
 */
import { CATALOGUE, type CatalogueEntry, type ConstructKind, type EventType } from "./catalogue.ts";
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

/** The effect of each event type on the order of a session: a table, made from the catalogue. */

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

/**
 * Tracks the constructs made of CHUNKs, which come without START and END. A chunk without a
 * construct to continue starts one, and the next event that is not a chunk of it ends it. A chunk
 * need not name its construct, so the agent and each subagent build one construct at a time: each
 * has a lane.
 */

/** A construct that a chunk has started. */
export interface Chunked {
  readonly bit: number;
  readonly key: string;
}

interface Chunk {
  readonly bit: number;
  /** Undefined: the chunk continues the current construct. */
  readonly key: string | undefined;
  readonly owner: string | undefined;
}

export class ChunkLanes<C extends Chunked = Chunked> {
  readonly #lanes: Map<string | undefined, C>;
  #chars = 0;

  constructor(lanes?: ReadonlyMap<string | undefined, C>) {
    this.#lanes = new Map(lanes);
  }

  clone(): ChunkLanes<C> {
    const copy = new ChunkLanes<C>(this.#lanes);
    copy.#chars = this.#chars;
    return copy;
  }

  get size(): number {
    return this.#lanes.size;
  }

  /** Characters of the ids that it holds. */
  get chars(): number {
    return this.#chars;
  }

  /** The construct that the chunk continues; if there is none, the chunk starts one. */
  find({ bit, key, owner }: Chunk): C | undefined {
    const fits = (chunked: C): boolean =>
      chunked.bit === bit && (key === undefined || chunked.key === key);
    const own = this.#lanes.get(owner);
    if (own !== undefined && fits(own)) return own;
    if (key === undefined && owner !== undefined) return undefined;
    // Without naming its owner, the chunk can continue another owner's construct, if exactly one
    // fits.
    const [first, second] = [...this.#lanes.values()].filter(fits);
    return key === undefined && second !== undefined ? undefined : first;
  }

  start(owner: string | undefined, chunked: C): void {
    this.end(owner);
    this.#lanes.set(owner, chunked);
    this.#chars += charsOf(owner, chunked);
  }

  /** Ends and returns the constructs that were open there. */
  end(owner: string | undefined): readonly C[] {
    const chunked = this.#lanes.get(owner);
    if (chunked === undefined) return [];
    this.#lanes.delete(owner);
    this.#chars -= charsOf(owner, chunked);
    return [chunked];
  }

  endAll(): readonly C[] {
    const all = [...this.#lanes.values()];
    this.#lanes.clear();
    this.#chars = 0;
    return all;
  }
}

function charsOf(owner: string | undefined, { key }: Chunked): number {
  return (owner?.length ?? 0) + key.length;
}
