/**
 * The part of a fold that finds the construct of an event. The redaction, the canonical stream
 * and the message derivation all use it, each with its own record of a construct:
 *
 *   EFFECTS            type of an event ──► what it does, to which kind of construct
 *   placeOf            event ──► the id and the owner of its construct
 *   phaseAfter         the phase of the run, and whether an event changes it
 *   ChunkLanes         CHUNKs, which need no id ──► the construct that they continue, or begin
 *   OpenConstructs     the open constructs in the order of their opening, within limits
 *
 * Everything here is pure, and cheap enough for the path of a push.
 */
import { CATALOGUE, type CatalogueEntry, type ConstructKind, type EventType } from "./catalogue.ts";
import { type JsonObject, textOf } from "./json.ts";

/** The fields of an event that identify its construct. */
export interface EventAddress {
  readonly type: EventType;
  /** Identifies its construct within the kind; undefined: at most one of the kind is open. */
  readonly key: string | undefined;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
  /** For a CHUNK: it has all fields that a START needs. */
  readonly canStart: boolean;
}

/** For an event that a version of the protocol accepts. */
export function addressOf(
  { type, kind, idField }: CatalogueEntry,
  value: JsonObject,
): EventAddress {
  const id = idField === undefined ? undefined : textOf(value[idField]);
  const owner = textOf(value["subagentRunId"]);
  const key = kind === "step" ? ownedKey({ id, owner }) : id;
  const isNamed = type !== "TOOL_CALL_CHUNK" || value["toolCallName"] !== undefined;
  return { type, key, owner, canStart: id !== undefined && isNamed };
}

/** Subagents may use the same names as each other and as the agent. */
export function ownedKey({ id = "", owner }: OwnedId): string {
  return owner === undefined ? `:${id}` : `${owner.length}:${owner}${id}`;
}

interface OwnedId {
  readonly id: string | undefined;
  readonly owner: string | undefined;
}

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
  readonly kind: ConstructKind | undefined;
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

/** The effect of each event type on the order of a session, from the catalogue. */
export const EFFECTS: ReadonlyMap<EventType, Effect> = new Map(
  CATALOGUE.map((entry) => [
    entry.type,
    { does: doesOf(entry), kind: entry.kind, endsChunks: endsChunksOf(entry) },
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

/** `before`: no event of a run came. */
export type Phase = "before" | "open" | "finished" | "failed";

/** The phase after such an event. Undefined: no run is open, so it changes and ends nothing. */
export function phaseAfter(phase: Phase, { does }: Effect): Phase | undefined {
  if (does === "open_run") return "open";
  if (does === "finish_run") return phase === "open" ? "finished" : undefined;
  return does === "fail_run" && phase !== "failed" ? "failed" : undefined;
}

/** Ids noted of a run. In 241 streams, 234 of them of real agents, no run has more than 5. */
export const OPEN_IDS_MAX = 1_000;
/** Characters of all noted ids; ids may be long: some hold a provider's signature. */
export const OPEN_CHARS_MAX = 1_048_576;

/** A construct that a chunk has started. */
export interface Chunked {
  readonly kind: ConstructKind;
  readonly key: string;
}

interface Followed<C> {
  /** For a CHUNK: the construct that it continues; undefined: the CHUNK begins one. */
  readonly construct: C | undefined;
  readonly ended: readonly C[];
}

/**
 * The constructs made of CHUNKs. A chunk with no construct to continue starts one, and the next
 * other event ends it. The agent and each subagent build one at a time: each has a lane.
 */
export class ChunkLanes<C extends Chunked = Chunked> {
  readonly #idsArePerOwner: boolean;
  readonly #lanes = new Map<string | undefined, C>();
  #chars = 0;

  /** `idsArePerOwner`: two subagents may use one id for two constructs. */
  constructor({ idsArePerOwner = false } = {}) {
    this.#idsArePerOwner = idsArePerOwner;
  }

  clone(): ChunkLanes<C> {
    const copy = new ChunkLanes<C>({ idsArePerOwner: this.#idsArePerOwner });
    for (const [owner, chunked] of this.#lanes) copy.#lanes.set(owner, chunked);
    copy.#chars = this.#chars;
    return copy;
  }

  get size(): number {
    return this.#lanes.size;
  }

  get chars(): number {
    return this.#chars;
  }

  /** Takes the next event. Call `begin` when it is a CHUNK that continues no construct. */
  follow(effect: Effect, { key, owner }: Pick<EventAddress, "key" | "owner">): Followed<C> {
    const { does, kind, endsChunks } = effect;
    if (this.#lanes.size === 0) return NOTHING_FOLLOWED;
    if (does === "chunk") {
      const construct = this.#find({ kind, key, owner });
      return { construct, ended: construct === undefined ? this.#end(owner) : [] };
    }
    if (endsChunks === "of_nobody") return NOTHING_FOLLOWED;
    return {
      construct: undefined,
      ended: endsChunks === "of_all" ? this.endAll() : this.#end(owner),
    };
  }

  /** The CHUNK begins this construct. Returns the constructs that end because too many are open. */
  begin(owner: string | undefined, chunked: C): readonly C[] {
    const isFull = this.#lanes.size >= OPEN_IDS_MAX || this.#chars >= OPEN_CHARS_MAX;
    const ended = isFull ? this.endAll() : [];
    this.#lanes.set(owner, chunked);
    this.#chars += charsOf(owner, chunked);
    return ended;
  }

  endAll(): readonly C[] {
    const all = [...this.#lanes.values()];
    this.#lanes.clear();
    this.#chars = 0;
    return all;
  }

  #find({ kind, key, owner }: Pick<Effect, "kind"> & Pick<EventAddress, "key" | "owner">) {
    const fits = (chunked: C): boolean =>
      chunked.kind === kind && (key === undefined || chunked.key === key);
    const own = this.#lanes.get(owner);
    if (own !== undefined && fits(own)) return own;
    if (owner !== undefined && (key === undefined || this.#idsArePerOwner)) return undefined;
    // A chunk without an owner continues another owner's construct, if exactly one fits.
    const [first, second] = [...this.#lanes.values()].filter(fits);
    return key === undefined && second !== undefined ? undefined : first;
  }

  #end(owner: string | undefined): readonly C[] {
    const chunked = this.#lanes.get(owner);
    if (chunked === undefined) return [];
    this.#lanes.delete(owner);
    this.#chars -= charsOf(owner, chunked);
    return [chunked];
  }
}

const NOTHING_FOLLOWED = { construct: undefined, ended: [] } as const;

function charsOf(owner: string | undefined, { key }: Chunked): number {
  return (owner?.length ?? 0) + key.length;
}

/** The fields of an open construct that its collection needs. */
interface ConstructEntry {
  readonly kind: ConstructKind;
  /** Distinguishes the construct from others of its kind. */
  readonly key: string;
  /** Its share of the limit in characters. */
  readonly chars: number;
}

/** The open constructs, in the order of their opening. */
export class OpenConstructs<C extends ConstructEntry> {
  readonly #byKind = new Map<ConstructKind, Map<string, C>>();
  readonly #inOrder = new Set<C>();
  #chars = 0;

  clone(): OpenConstructs<C> {
    const copy = new OpenConstructs<C>();
    for (const construct of this.#inOrder) copy.open(construct);
    return copy;
  }

  get size(): number {
    return this.#inOrder.size;
  }

  get chars(): number {
    return this.#chars;
  }

  get(kind: ConstructKind, key: string): C | undefined {
    return this.#byKind.get(kind)?.get(key);
  }

  /** For a construct that is not open. */
  open(construct: C): void {
    const { kind, key, chars } = construct;
    const ofKind = this.#byKind.get(kind) ?? new Map<string, C>();
    this.#byKind.set(kind, ofKind.set(key, construct));
    this.#inOrder.add(construct);
    this.#chars += chars;
  }

  /** Adds characters to the size of the construct. */
  grow(construct: C & { chars: number }, chars: number): void {
    construct.chars += chars;
    this.#chars += chars;
  }

  /** False: the construct was not open. */
  close(construct: C): boolean {
    if (!this.#inOrder.delete(construct)) return false;
    this.#byKind.get(construct.kind)?.delete(construct.key);
    this.#chars -= construct.chars;
    return true;
  }

  clear(): void {
    this.#byKind.clear();
    this.#inOrder.clear();
    this.#chars = 0;
  }

  /** Oldest first. */
  inOrder(): readonly C[] {
    return [...this.#inOrder];
  }

  /** The oldest construct, if the count or the total length exceeds its limit. */
  oldestAbove(charsMax: number): C | undefined {
    if (this.#inOrder.size <= OPEN_IDS_MAX && this.#chars <= charsMax) return undefined;
    const [oldest] = this.#inOrder;
    return oldest;
  }
}
