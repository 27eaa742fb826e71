/**
 * Tracks when messages and tool calls begin, continue and end. The callback gets each one once, at
 * its end. A chunk run has no END; it ends with the next event that is not a chunk of it.
 */
import { type Chunked, ChunkLanes } from "../../agui/chunk-lanes.ts";
import type { JsonObject } from "../../agui/json.ts";
import { BITS, type Effect } from "../../agui/sequence-effects.ts";
import { textField } from "./event.ts";
import {
  type ConstructPlace,
  type OpenConstruct,
  OpenConstructs,
  type Said,
} from "./open-constructs.ts";

/**
 * The limit of lanes for chunks of subagents (each lane holds one construct), and of all their ids.
 */
const LANES_MAX = 1_000;
const LANE_CHARS_MAX = 1_048_576;

/** A construct in a lane; for reasoning only its presence is noted. */
interface InLane extends Chunked {
  readonly owner: string | undefined;
  readonly place: ConstructPlace | undefined;
  readonly said: Said;
}

export class Constructs {
  readonly #open: OpenConstructs;
  readonly #lanes = new ChunkLanes<InLane>();
  readonly #told: (construct: OpenConstruct) => void;

  constructor(told: (construct: OpenConstruct) => void, limits: { readonly textCharsMax: number }) {
    this.#told = told;
    this.#open = new OpenConstructs(limits);
  }

  /** A second START of an open construct changes only the name: clients continue it too. */
  start(effect: Effect, event: JsonObject): void {
    const place = placeOf(effect, event);
    if (place !== undefined) this.#start(place, saidOf(effect, event));
  }

  /** A fragment without a START belongs to the assistant. */
  goOn(effect: Effect, event: JsonObject): void {
    const place = placeOf(effect, event);
    if (place !== undefined) this.#goOn(place, { isAssistants: true, name: undefined }, event);
  }

  end(effect: Effect, event: JsonObject): void {
    const place = placeOf(effect, event);
    const construct = place && this.#open.find(place);
    if (construct !== undefined) this.#tell(construct);
  }

  chunk(effect: Effect, event: JsonObject): void {
    const owner = ownerOf(event);
    const found = this.#lanes.find({ bit: effect.bit, key: idOf(effect, event), owner });
    // The same id from another subagent is a different message.
    const known = owner === undefined || found?.owner === owner ? found : undefined;
    const lane = known ?? this.#startLane(effect, event);
    if (lane?.place === undefined) return;
    if (known === undefined) this.#start(lane.place, lane.said);
    this.#goOn(lane.place, lane.said, event);
  }

  /** Call this before any other handling of an event. */
  endChunks({ endsChunks }: Effect, event: JsonObject): void {
    if (endsChunks === "of_nobody" || this.#lanes.size === 0) return;
    const ended = endsChunks === "of_all" ? this.#lanes.endAll() : this.#lanes.end(ownerOf(event));
    this.#endLanes(ended);
  }

  /** All open constructs end, in the order in which they began. */
  endAll(): void {
    for (const construct of this.#open.all()) this.#tell(construct);
  }

  /** The run stops here: open messages end as they are, and an incomplete tool call is dropped. */
  breakOff(): void {
    for (const construct of this.#open.all()) {
      if (construct.kind === "text") this.#tell(construct);
      else this.#open.close(construct);
    }
  }

  #start(place: ConstructPlace, said: Said): void {
    const known = this.#open.get(place);
    if (known === undefined) this.#openAt(place, said);
    else known.name = said.name ?? known.name;
  }

  #goOn(place: ConstructPlace, said: Said, event: JsonObject): void {
    const construct = this.#open.find(place) ?? this.#openAt(place, said);
    this.#open.append(construct, textField(event, "delta") ?? "");
    this.#makeRoom();
  }

  #openAt(place: ConstructPlace, said: Said): OpenConstruct {
    const construct = this.#open.open(place, said);
    this.#makeRoom();
    return construct;
  }

  #startLane(effect: Effect, event: JsonObject): InLane | undefined {
    const owner = ownerOf(event);
    const isFull = this.#lanes.size >= LANES_MAX || this.#lanes.chars >= LANE_CHARS_MAX;
    this.#endLanes(isFull ? this.#lanes.endAll() : this.#lanes.end(owner));
    const kind = KIND_BY_BIT.get(effect.bit);
    const id = idOf(effect, event);
    // No result can refer to a call without an id.
    if (kind === "tool_call" && id === undefined) return undefined;
    const key = id ?? "";
    const place = kind && { kind, key, owner };
    const lane = { bit: effect.bit, key, owner, place, said: saidOf(effect, event) };
    this.#lanes.start(owner, lane);
    return lane;
  }

  #endLanes(lanes: readonly InLane[]): void {
    for (const { place } of lanes) {
      const construct = place && this.#open.get(place);
      if (construct !== undefined) this.#tell(construct);
    }
  }

  #makeRoom(): void {
    for (;;) {
      const oldest = this.#open.overflowing();
      if (oldest === undefined) return;
      this.#tell(oldest);
    }
  }

  #tell(construct: OpenConstruct): void {
    this.#open.close(construct);
    this.#told(construct);
  }
}

const KIND_BY_BIT: ReadonlyMap<number, ConstructPlace["kind"]> = new Map([
  [BITS.text, "text"],
  [BITS.tool_call, "tool_call"],
]);

/** Undefined: the event does not name its construct. */
function placeOf(effect: Effect, event: JsonObject): ConstructPlace | undefined {
  const kind = KIND_BY_BIT.get(effect.bit);
  const key = idOf(effect, event);
  return kind && key !== undefined ? { kind, key, owner: ownerOf(event) } : undefined;
}

function idOf({ bit }: Effect, event: JsonObject): string | undefined {
  return textField(event, bit === BITS.tool_call ? "toolCallId" : "messageId");
}

function ownerOf(event: JsonObject): string | undefined {
  return textField(event, "subagentRunId");
}

/** For a START, or for a chunk that stands for one. */
function saidOf({ bit }: Effect, event: JsonObject): Said {
  const role = bit === BITS.text ? textField(event, "role") : undefined;
  const isAssistants = role === undefined || role === "assistant";
  return { isAssistants, name: textField(event, "toolCallName") };
}
