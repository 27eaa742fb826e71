/**
 * Tracks messages and tool calls; the callback gets each one once, at its end. A chunk run ends
 * with the next event that is not a chunk of it. Constructs interleave, and subagents may use the
 * same ids. A text is stored up to the size of a payload. Above the limits of the number of open
 * constructs, and of their size, the oldest one ends; later fragments of it begin a new one.
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

interface ConstructRef {
  readonly kind: "text" | "tool_call";
  readonly id: string;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
}

interface StartFields {
  /** False: the text of another role, which derives no message. */
  readonly isAssistants: boolean;
  readonly name: string | undefined;
}

export interface TrackedConstruct extends ConstructRef {
  readonly key: string;
  readonly isAssistants: boolean;
  name: string | undefined;
  text: string;
  /** Characters that were not stored. */
  missingChars: number;
  chars: number;
}

/** The construct of a run of chunks; for reasoning only its presence is noted. */
interface ChunkedConstruct extends Chunked {
  readonly ref: ConstructRef | undefined;
  readonly startFields: StartFields;
}

export class ConstructTracker {
  readonly #open = new OpenConstructs<TrackedConstruct>();
  readonly #lanes = new ChunkLanes<ChunkedConstruct>({ idsArePerOwner: true });
  readonly #onEnd: (construct: TrackedConstruct) => void;
  readonly #textCharsMax: number;

  constructor(
    onEnd: (construct: TrackedConstruct) => void,
    limits: { readonly textCharsMax: number },
  ) {
    this.#onEnd = onEnd;
    this.#textCharsMax = limits.textCharsMax;
  }

  /** Takes the next event, of any type. */
  take(effect: Effect, event: JsonObject): void {
    const { does } = effect;
    const kind = effect.kind === "text" || effect.kind === "tool_call" ? effect.kind : undefined;
    const id = textField(event, kind === "tool_call" ? "toolCallId" : "messageId");
    const owner = textField(event, "subagentRunId");
    const { construct, ended } = this.#lanes.follow(effect, { key: id, owner });
    this.#endChunked(ended);
    if (does === "chunk" && effect.kind !== undefined) {
      // No result can refer to a call without an id.
      if (construct === undefined && kind === "tool_call" && id === undefined) return;
      const ref = kind && { kind, id: id ?? "", owner };
      const fresh = {
        kind: effect.kind,
        key: id ?? "",
        ref,
        startFields: startFieldsOf(kind, event),
      };
      if (construct === undefined) {
        this.#endChunked(this.#lanes.begin(owner, fresh));
        if (ref !== undefined) this.#start(ref, fresh.startFields);
      }
      const chunked = construct ?? fresh;
      if (chunked.ref !== undefined) this.#append(chunked.ref, chunked.startFields, event);
    } else if (kind !== undefined && id !== undefined) {
      const ref = { kind, id, owner };
      if (does === "start") this.#start(ref, startFieldsOf(kind, event));
      // A fragment without a START belongs to the assistant.
      else if (does === "fragment")
        this.#append(ref, { isAssistants: true, name: undefined }, event);
      else if (does === "end") this.#end(this.#find(ref));
    }
  }

  /** All open constructs end, in the order in which they began. */
  endAll(): void {
    for (const construct of this.#open.inOrder()) this.#end(construct);
  }

  /** The run stops here: open messages end as they are, and an incomplete tool call is dropped. */
  breakOff(): void {
    for (const construct of this.#open.inOrder())
      if (construct.kind === "text") this.#end(construct);
    this.#open.clear();
  }

  /** A second START of an open construct changes only the name: clients continue it too. */
  #start(ref: ConstructRef, startFields: StartFields): void {
    const construct = this.#open.get(ref.kind, ownedKey(ref));
    if (construct === undefined) this.#begin(ref, startFields);
    else construct.name = startFields.name ?? construct.name;
  }

  #append(ref: ConstructRef, startFields: StartFields, event: JsonObject): void {
    const construct = this.#find(ref) ?? this.#begin(ref, startFields);
    const delta = textField(event, "delta") ?? "";
    if (!construct.isAssistants || delta === "") return;
    const text = delta.slice(0, Math.max(0, this.#textCharsMax - construct.text.length));
    construct.text += text;
    construct.missingChars += delta.length - text.length;
    if (text !== "") this.#open.grow(construct, text.length + FRAGMENT_CHARS);
    this.#makeRoom();
  }

  #begin(ref: ConstructRef, startFields: StartFields): TrackedConstruct {
    const key = ownedKey(ref);
    const chars = FRAGMENT_CHARS + ref.id.length + (ref.owner?.length ?? 0);
    const construct = { ...ref, key, ...startFields, text: "", missingChars: 0, chars };
    this.#open.open(construct);
    this.#makeRoom();
    return construct;
  }

  /** An event without an owner may belong to the single construct with its id. */
  #find(ref: ConstructRef): TrackedConstruct | undefined {
    const own = this.#open.get(ref.kind, ownedKey(ref));
    if (own !== undefined || ref.owner !== undefined) return own;
    const isAlike = ({ kind, id }: TrackedConstruct) => kind === ref.kind && id === ref.id;
    const [first, second] = this.#open.inOrder().filter(isAlike);
    return second === undefined ? first : undefined;
  }

  #endChunked(chunked: readonly ChunkedConstruct[]): void {
    for (const { ref } of chunked)
      if (ref !== undefined) this.#end(this.#open.get(ref.kind, ownedKey(ref)));
  }

  #makeRoom(): void {
    for (;;) {
      const oldest = this.#open.oldestAbove(TEXT_CHARS_MAX);
      if (oldest === undefined) return;
      this.#end(oldest);
    }
  }

  #end(construct: TrackedConstruct | undefined): void {
    if (construct === undefined) return;
    this.#open.close(construct);
    this.#onEnd(construct);
  }
}

/** For a START, or for a chunk that stands for one. */
function startFieldsOf(kind: ConstructRef["kind"] | undefined, event: JsonObject): StartFields {
  const role = kind === "text" ? textField(event, "role") : undefined;
  const isAssistants = role === undefined || role === "assistant";
  return { isAssistants, name: textField(event, "toolCallName") };
}

/**
 * Events as agents emit them: keys may be in snake_case, optional fields null, a whole message in
 * the grouped form (packages/agui/src/split-event.ts). They are read without the schemas, so that a
 * runner loads no validator. An unreadable event derives nothing.
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

const GROUPED: ReadonlyMap<unknown, { readonly content: EventType; readonly end: EventType }> =
  new Map([
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
    // The END may have ids; otherwise the ids of START are used.
    ...(isObject(end) ? [{ ...event, ...end, type: grouped.end }] : []),
  ];
}
