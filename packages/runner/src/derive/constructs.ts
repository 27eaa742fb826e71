/**
 * Tracks when messages and tool calls begin, continue and end. The callback gets each one once, at
 * its end. A chunk run has no END; it ends with the next event that is not a chunk of it.
 *
 * Each construct is tracked separately: they interleave, and subagents may use the same ids. Three
 * bounds apply. A text is kept up to the size of a payload and only counted beyond it. The number of
 * open constructs is limited. Their total size is limited. Above the last two bounds the oldest
 * construct ends as if its END had come; later fragments of it begin a new one.
 */
import type { EventType } from "@session-ledger/agui/catalogue";
import {
  type Chunked,
  ChunkLanes,
  type Effect,
  OpenConstructs,
  ownedKey,
} from "@session-ledger/agui/constructs";
import { isObject, type JsonObject } from "@session-ledger/agui/json";

/** The total of all open constructs: one text as long as a payload in single characters. */
const TEXT_CHARS_MAX = 24 * 1_048_576;
/** An appended fragment is a separate node in memory until the text is read. */
const FRAGMENT_CHARS = 16;

/** Identifies a construct. */
interface Place {
  readonly kind: "text" | "tool_call";
  readonly id: string;
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

export interface OpenConstruct extends Place {
  readonly key: string;
  readonly isAssistants: boolean;
  name: string | undefined;
  text: string;
  /** Characters that were not kept. */
  missingChars: number;
  chars: number;
}

/** A construct in a lane; for reasoning only its presence is noted. */
interface InLane extends Chunked {
  readonly place: Place | undefined;
  readonly said: Said;
}

export class Constructs {
  readonly #open = new OpenConstructs<OpenConstruct>();
  readonly #lanes = new ChunkLanes<InLane>({ idsArePerOwner: true });
  readonly #told: (construct: OpenConstruct) => void;
  readonly #textCharsMax: number;

  constructor(told: (construct: OpenConstruct) => void, limits: { readonly textCharsMax: number }) {
    this.#told = told;
    this.#textCharsMax = limits.textCharsMax;
  }

  /** Takes the next event, of any type. */
  take(effect: Effect, event: JsonObject): void {
    const { does } = effect;
    const kind = effect.kind === "text" || effect.kind === "tool_call" ? effect.kind : undefined;
    const id = textField(event, kind === "tool_call" ? "toolCallId" : "messageId");
    const owner = textField(event, "subagentRunId");
    const { known, ended } = this.#lanes.follow(effect, { key: id, owner });
    this.#endLanes(ended);
    if (does === "chunk" && effect.kind !== undefined) {
      // No result can refer to a call without an id.
      if (known === undefined && kind === "tool_call" && id === undefined) return;
      const place = kind && { kind, id: id ?? "", owner };
      const begun = { kind: effect.kind, key: id ?? "", place, said: saidOf(kind, event) };
      if (known === undefined) {
        this.#endLanes(this.#lanes.begin(owner, begun));
        if (place !== undefined) this.#start(place, begun.said);
      }
      const lane = known ?? begun;
      if (lane.place !== undefined) this.#goOn(lane.place, lane.said, event);
    } else if (kind !== undefined && id !== undefined) {
      const place = { kind, id, owner };
      if (does === "start") this.#start(place, saidOf(kind, event));
      // A fragment without a START belongs to the assistant.
      else if (does === "fragment")
        this.#goOn(place, { isAssistants: true, name: undefined }, event);
      else if (does === "end") this.#tell(this.#find(place));
    }
  }

  /** All open constructs end, in the order in which they began. */
  endAll(): void {
    for (const construct of this.#open.inOrder()) this.#tell(construct);
  }

  /** The run stops here: open messages end as they are, and an incomplete tool call is dropped. */
  breakOff(): void {
    for (const construct of this.#open.inOrder())
      if (construct.kind === "text") this.#tell(construct);
    this.#open.clear();
  }

  /** A second START of an open construct changes only the name: clients continue it too. */
  #start(place: Place, said: Said): void {
    const known = this.#open.get(place.kind, ownedKey(place));
    if (known === undefined) this.#begin(place, said);
    else known.name = said.name ?? known.name;
  }

  #goOn(place: Place, said: Said, event: JsonObject): void {
    const construct = this.#find(place) ?? this.#begin(place, said);
    const delta = textField(event, "delta") ?? "";
    if (!construct.isAssistants || delta === "") return;
    const kept = delta.slice(0, Math.max(0, this.#textCharsMax - construct.text.length));
    construct.text += kept;
    construct.missingChars += delta.length - kept.length;
    if (kept !== "") this.#open.grow(construct, kept.length + FRAGMENT_CHARS);
    this.#makeRoom();
  }

  #begin(place: Place, said: Said): OpenConstruct {
    const key = ownedKey(place);
    const chars = FRAGMENT_CHARS + place.id.length + (place.owner?.length ?? 0);
    const construct = { ...place, key, ...said, text: "", missingChars: 0, chars };
    this.#open.open(construct);
    this.#makeRoom();
    return construct;
  }

  /** An event without an owner may belong to the single construct with its id. */
  #find(place: Place): OpenConstruct | undefined {
    const own = this.#open.get(place.kind, ownedKey(place));
    if (own !== undefined || place.owner !== undefined) return own;
    const isAlike = ({ kind, id }: OpenConstruct) => kind === place.kind && id === place.id;
    const [first, second] = this.#open.inOrder().filter(isAlike);
    return second === undefined ? first : undefined;
  }

  #endLanes(lanes: readonly InLane[]): void {
    for (const { place } of lanes)
      if (place !== undefined) this.#tell(this.#open.get(place.kind, ownedKey(place)));
  }

  #makeRoom(): void {
    for (;;) {
      const oldest = this.#open.oldestAbove(TEXT_CHARS_MAX);
      if (oldest === undefined) return;
      this.#tell(oldest);
    }
  }

  #tell(construct: OpenConstruct | undefined): void {
    if (construct === undefined) return;
    this.#open.close(construct);
    this.#told(construct);
  }
}

/** For a START, or for a chunk that stands for one. */
function saidOf(kind: Place["kind"] | undefined, event: JsonObject): Said {
  const role = kind === "text" ? textField(event, "role") : undefined;
  const isAssistants = role === undefined || role === "assistant";
  return { isAssistants, name: textField(event, "toolCallName") };
}

/**
 * Events as agents emit them, before the service has normalised them. Keys may be in snake_case,
 * optional fields may be null, and a whole message may be one event in the grouped form
 * (packages/agui/src/rows.ts). They are read leniently and without the schemas, so a runner need not load
 * the validator. An unreadable event derives nothing, and the service reports its fault.
 */

/** The fields that messages are made from, as the protocol and Python runners spell them. */
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

interface Grouped {
  readonly content: EventType;
  readonly end: EventType;
}

const GROUPED: ReadonlyMap<unknown, Grouped> = new Map([
  ["TEXT_MESSAGE_START", { content: "TEXT_MESSAGE_CONTENT", end: "TEXT_MESSAGE_END" }],
  ["TOOL_CALL_START", { content: "TOOL_CALL_ARGS", end: "TOOL_CALL_END" }],
]);

/** The events that one event stands for: itself, or START, fragment and END of a group. */
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
