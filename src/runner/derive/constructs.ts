/**
 * Tracks when messages and tool calls begin, continue and end. The callback gets each one once, at
 * its end. A chunk run has no END; it ends with the next event that is not a chunk of it.
 */
import type { EventType } from "../../agui/catalogue.ts";
import { BITS, type Chunked, ChunkLanes, type Effect } from "../../agui/constructs.ts";
import { isObject, type JsonObject } from "../../agui/json.ts";
import { OPEN_IDS_MAX } from "../../agui/sequence.ts";

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

/**
 * The open messages and tool calls, each tracked separately: they interleave, and subagents may use
 * the same ids. Three bounds apply. A text is kept up to the size of a payload and only counted
 * beyond it. The number of open constructs is limited. Their total size is limited. Above the last
 * two bounds the oldest construct ends as if its END had come; later fragments of it begin a new
 * one.
 */

/** Identifies a construct. */
interface ConstructPlace {
  readonly kind: "text" | "tool_call";
  /** Its id. */
  readonly key: string;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
}

/** The fields of a START. */
interface Said {
  /** False: the text of another role, which derives no message. */
  readonly isAssistants: boolean;
  /** The name of a tool. */
  readonly name: string | undefined;
}

export interface OpenConstruct extends ConstructPlace {
  readonly isAssistants: boolean;
  name: string | undefined;
  text: string;
  /** Characters that were not kept. */
  missingChars: number;
  /** Its share of the total size. */
  weight: number;
}

/**
 * The total of all open constructs: one text as long as a payload in fragments of one character, or
 * several texts.
 */
const OPEN_CHARS_MAX = 24 * 1_048_576;
/** An appended fragment is a separate node in memory until the text is read. */
const FRAGMENT_CHARS = 16;

class OpenConstructs {
  readonly #open = new Map<string, OpenConstruct>();
  readonly #textCharsMax: number;
  #weight = 0;

  constructor({ textCharsMax }: { readonly textCharsMax: number }) {
    this.#textCharsMax = textCharsMax;
  }

  /** Returns exactly this construct. */
  get(place: ConstructPlace): OpenConstruct | undefined {
    return this.#open.get(nameOf(place));
  }

  /** An event without an owner may belong to the single construct with its id. */
  find(place: ConstructPlace): OpenConstruct | undefined {
    const own = this.get(place);
    if (own !== undefined || place.owner !== undefined) return own;
    const alike = this.all().filter(({ kind, key }) => kind === place.kind && key === place.key);
    return alike.length === 1 ? alike[0] : undefined;
  }

  open({ kind, key, owner }: ConstructPlace, said: Said): OpenConstruct {
    const empty = { text: "", missingChars: 0, weight: 0 };
    const construct = { kind, key, owner, ...said, ...empty };
    this.#open.set(nameOf(construct), construct);
    this.#weigh(construct, FRAGMENT_CHARS + key.length + (owner?.length ?? 0));
    return construct;
  }

  append(construct: OpenConstruct, delta: string): void {
    if (!construct.isAssistants || delta === "") return;
    const kept = delta.slice(0, Math.max(0, this.#textCharsMax - construct.text.length));
    construct.text += kept;
    construct.missingChars += delta.length - kept.length;
    if (kept !== "") this.#weigh(construct, kept.length + FRAGMENT_CHARS);
  }

  /** False: the construct was not open. */
  close(construct: OpenConstruct): boolean {
    const name = nameOf(construct);
    if (this.#open.get(name) !== construct) return false;
    this.#open.delete(name);
    this.#weight -= construct.weight;
    return true;
  }

  /** In the order of their opening. */
  all(): readonly OpenConstruct[] {
    return [...this.#open.values()];
  }

  /** The oldest construct, when a limit is exceeded. */
  overflowing(): OpenConstruct | undefined {
    if (this.#open.size <= OPEN_IDS_MAX && this.#weight <= OPEN_CHARS_MAX) return undefined;
    const [oldest] = this.#open.values();
    return oldest;
  }

  #weigh(construct: OpenConstruct, chars: number): void {
    construct.weight += chars;
    this.#weight += chars;
  }
}

function nameOf({ kind, key, owner }: ConstructPlace): string {
  return owner === undefined ? `${kind}:${key}` : `${kind}${owner.length}:${owner}${key}`;
}

/**
 * Events as agents emit them, before the service has normalised them. Keys may be in snake_case,
 * optional fields may be null, and a whole message may be one event in the grouped form
 * (src/agui/grouped.ts). They are read leniently and without the schemas, so a runner need not load
 * the validator. An unreadable event derives nothing, and the service reports its fault.
 */

/**
 * The fields that messages are made from, in the spelling of the protocol and of Python runners.
 */
const SNAKE_NAMES = {
  messageId: "message_id",
  toolCallId: "tool_call_id",
  toolCallName: "tool_call_name",
  runId: "run_id",
  subagentRunId: "subagent_run_id",
  role: "role",
  delta: "delta",
  name: "name",
  code: "code",
  message: "message",
} as const;

type FieldName = keyof typeof SNAKE_NAMES;

/** Undefined: the field is absent, null, or not a text. */
export function textField(event: JsonObject, name: FieldName): string | undefined {
  const value = event[name] ?? event[SNAKE_NAMES[name]];
  return typeof value === "string" ? value : undefined;
}

/** Undefined when the text is not a JSON object. */
export function readEvent(payload: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(payload);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

interface Grouped {
  readonly content: EventType;
  readonly end: EventType;
}

const GROUPED: ReadonlyMap<unknown, Grouped> = new Map([
  ["TEXT_MESSAGE_START", { content: "TEXT_MESSAGE_CONTENT", end: "TEXT_MESSAGE_END" }],
  ["TOOL_CALL_START", { content: "TOOL_CALL_ARGS", end: "TOOL_CALL_END" }],
]);

/**
 * The events that one event stands for: itself, or START, a fragment and END for the grouped form.
 */
export function ungrouped(event: JsonObject): readonly JsonObject[] {
  const grouped = GROUPED.get(event["type"]);
  if (grouped === undefined || !Object.hasOwn(event, "fragment_count")) return [event];
  const { accumulated_content: delta, end_event: end } = event;
  return [
    event,
    { ...event, type: grouped.content, delta: typeof delta === "string" ? delta : "" },
    // The END has ids of its own; the ids of START are used where it has none.
    ...(isObject(end) ? [{ ...event, ...end, type: grouped.end }] : []),
  ];
}
