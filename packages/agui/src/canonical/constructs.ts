/**
 * Mends events, so that a client that checks their order accepts each one: a second START ends the
 * first construct, a fragment without an open construct opens one, and an END without one is
 * dropped. Above the limits the oldest construct is ended, and opened again if it continues;
 * messages do not show that. A subagent cannot start twice in a run: its second START goes out as
 * CUSTOM.
 */
import {
  ChunkLanes,
  type Chunked,
  type Effect,
  OPEN_CHARS_MAX,
  OPEN_IDS_MAX,
  OpenConstructs,
} from "../constructs.ts";
import { type JsonObject, textOf } from "../json.ts";
import { REPLACES } from "../transcript/reducers.ts";
import { charBytes } from "../transcript/weight.ts";
import { CallArguments } from "./call-arguments.ts";
import {
  customOf,
  fragmentOfChunk,
  isOpenKind,
  KINDS,
  type OpenKind,
  type EventCollector,
  startOfChunk,
  tagOf,
  without,
} from "./event.ts";
import { type OwnedKind, Ownership } from "./owners.ts";

/** An event, and its bytes if it is unchanged since it was stored. */
export interface StoredEvent {
  readonly value: JsonObject;
  readonly text: string | undefined;
}

const OWNED: Readonly<Partial<Record<OpenKind, OwnedKind>>> = {
  text: "message",
  tool_call: "tool_call",
  reasoning: "reasoning",
  reasoning_message: "reasoning",
};

/** The fields of a START that a new START repeats: no provider payloads, no metadata. */
const REPEATED_FIELDS = [
  "type",
  "timestamp",
  "subagentRunId",
  "messageId",
  "role",
  "name",
  "toolCallId",
  "toolCallName",
  "parentMessageId",
  "stepName",
  "description",
  "parentSubagentRunId",
  "parentToolCallId",
] as const;

/** The memory of a construct besides the texts of its START. */
const CONSTRUCT_BYTES = 600;

interface OpenConstruct {
  readonly kind: OpenKind;
  readonly key: string;
  /** The START of the construct. */
  readonly opening: JsonObject;
  readonly chars: number;
}

export class CanonicalConstructs {
  #open = new OpenConstructs<OpenConstruct>();
  #lanes = new ChunkLanes();
  #owners = new Ownership();
  #arguments = new CallArguments();
  /** Open calls whose arguments were whole before their START, and which have new ones already. */
  #repeated = new Map<string, { isStarted: boolean }>();
  /** Subagents that started in this run; a subagent is one invocation. */
  #startedSubagents: Set<string> = new Set();
  #startedChars = 0;

  clone(): CanonicalConstructs {
    const copy = new CanonicalConstructs();
    copy.#open = this.#open.clone();
    copy.#lanes = this.#lanes.clone();
    copy.#owners = this.#owners.clone();
    copy.#arguments = this.#arguments.clone();
    // A client that joins has the new arguments up to here.
    for (const [id, { isStarted }] of this.#repeated)
      if (!isStarted) copy.#repeated.set(id, { isStarted });
    copy.#startedSubagents = new Set(this.#startedSubagents);
    copy.#startedChars = this.#startedChars;
    return copy;
  }

  get bytes(): number {
    const chars = this.#open.chars + this.#lanes.chars + this.#startedChars;
    const indexBytes = this.#owners.bytes + this.#arguments.bytes;
    return this.#open.size * CONSTRUCT_BYTES + indexBytes + charBytes(chars);
  }

  get owners(): Pick<Ownership, "hasHadMessage" | "hadActivities" | "addMessages"> {
    return this.#owners;
  }

  clear(): void {
    this.#open.clear();
    this.#repeated.clear();
    this.#lanes.endAll();
  }

  beginRun(inputMessages: unknown): void {
    this.clear();
    this.#startedSubagents.clear();
    this.#startedChars = 0;
    this.#owners.beginRun();
    this.#owners.addMessages(inputMessages);
    this.#arguments.setAll(inputMessages, { isInput: true });
  }

  start(out: EventCollector, kind: OpenKind, key: string, event: StoredEvent): void {
    if (kind === "subagent" && !this.#isNewSubagent(key)) {
      out.add(customOf("SUBAGENT_STARTED", event.value));
      return;
    }
    this.close(out, kind, key);
    if (kind === "tool_call" && this.#arguments.areWhole(key))
      this.#repeated.set(key, { isStarted: false });
    const accepted = kind === "subagent" ? this.#underOpenParent(event) : this.#opened(kind, event);
    out.add(accepted.value, accepted.text);
    const opening = Object.fromEntries(
      REPEATED_FIELDS.flatMap((field) => {
        const value = accepted.value[field];
        return value === undefined ? [] : [[field, value]];
      }),
    );
    this.#open.open({ kind, key, opening, chars: JSON.stringify(opening).length });
    while (this.#open.size > 1) {
      const oldest = this.#open.oldestAbove(OPEN_CHARS_MAX);
      if (oldest === undefined) return;
      this.#close(out, oldest);
    }
  }

  fragment(out: EventCollector, kind: OpenKind, key: string, event: StoredEvent): void {
    if (this.#open.get(kind, key) === undefined) {
      if (kind === "tool_call" && this.#arguments.areWhole(key)) return;
      this.start(out, kind, key, changed(out.timed(this.#startOf(kind, key, event.value))));
    }
    if (kind === "tool_call") this.#argue(out, key, event);
    else this.#append(out, OWNED[kind], key, event);
  }

  #argue(out: EventCollector, key: string, event: StoredEvent): void {
    const delta = textOf(event.value["delta"]) ?? "";
    const repeated = delta === "" ? undefined : this.#repeated.get(key);
    if (repeated === undefined) {
      this.#arguments.add(key, delta);
      return this.#append(out, "tool_call", key, event);
    }
    if (repeated.isStarted) {
      this.#arguments.add(key, delta);
      return out.addForTranscripts(event.value);
    }
    repeated.isStarted = true;
    this.#arguments.set(key, delta);
    out.addForTranscripts({ ...event.value, [REPLACES]: true });
  }

  end(out: EventCollector, kind: OpenKind, key: string, event: StoredEvent): void {
    const construct = this.#open.get(kind, key);
    if (construct === undefined) return;
    this.#open.close(construct);
    if (kind === "tool_call") this.#repeated.delete(key);
    this.#append(out, OWNED[kind], key, event);
  }

  close(out: EventCollector, kind: OpenKind, key: string): void {
    const construct = this.#open.get(kind, key);
    if (construct !== undefined) this.#close(out, construct);
  }

  /** The construct that was opened last is ended first. */
  closeAll(out: EventCollector, { suspends }: { readonly suspends: boolean }): void {
    for (const construct of this.#open.inOrder().toReversed())
      this.#close(out, construct, { suspends });
    this.#lanes.endAll();
  }

  /** Ends the constructs that the event ends. `id`: for a message whose first chunk has none. */
  followChunks(out: EventCollector, effect: Effect, chunk: JsonObject, id: string): void {
    const { does, kind } = effect;
    if (does !== "chunk" || !isOpenKind(kind)) {
      if (this.#lanes.size === 0) return;
      this.#closeEach(
        out,
        this.#lanes.follow(effect, { key: undefined, owner: tagOf(chunk) }).ended,
      );
      return;
    }
    const owner = tagOf(chunk);
    const named = textOf(chunk[KINDS[kind].idField]);
    const { construct, ended } = this.#lanes.follow(effect, { key: named, owner });
    this.#closeEach(out, ended);
    const key = construct?.key ?? named ?? id;
    if (construct === undefined) {
      this.#closeEach(out, this.#lanes.begin(owner, { kind, key }));
      const isLate = kind === "tool_call" && textOf(chunk["toolCallName"]) === undefined;
      if (isLate && this.#arguments.areWhole(key)) return;
      this.start(out, kind, key, changed(startOfChunk(kind, key, chunk)));
    }
    const opening = this.#open.get(kind, key)?.opening;
    const value = fragmentOfChunk(kind, chunk, {
      id: key,
      owner: opening && tagOf(opening),
      isFirst: construct === undefined,
    });
    if (value !== undefined) this.fragment(out, kind, key, changed(value));
  }

  /** Passes on an event that neither opens nor ends a construct. */
  whole(out: EventCollector, event: StoredEvent): void {
    const { value } = event;
    const tag = tagOf(value);
    const messageId = textOf(value["messageId"]) ?? "";
    switch (value["type"]) {
      case "TOOL_CALL_RESULT":
        this.#owners.made(messageId, tag);
        break;
      case "ACTIVITY_SNAPSHOT":
        this.#owners.activity(messageId, tag, { replaces: value["replace"] !== false });
        break;
      case "ACTIVITY_DELTA":
        this.#append(out, "activity", messageId, event);
        return;
      case "REASONING_ENCRYPTED_VALUE":
        this.#encrypted(out, event);
        return;
      case "MESSAGES_SNAPSHOT":
        this.#owners.replaced(value["messages"]);
        this.#arguments.setAll(value["messages"]);
        break;
      default: // State, RAW and CUSTOM may carry any subagent; clients do not check it.
    }
    out.add(value, event.text);
  }

  /** STARTs of the open constructs, for a client that already has the messages. */
  openings(): readonly JsonObject[] {
    return this.#open.inOrder().map(({ kind, key, opening }) => {
      const tag = tagOf(opening);
      if (kind === "subagent") return this.#underOpenParent({ value: opening, text: "" }).value;
      const owned = OWNED[kind];
      const isAgreed = owned === undefined || this.#owners.agrees(owned, key, tag);
      const accepted = isAgreed ? opening : without(opening, "subagentRunId");
      // A START that opens again may omit its tag: connected clients know it from the first START.
      const owner = kind === "reasoning" ? this.#owners.subagentOfReasoning(key) : undefined;
      if (owner !== undefined) return { ...accepted, subagentRunId: owner };
      // The call is already in its message, so its parent is not needed any more.
      return kind === "tool_call" ? without(accepted, "parentMessageId") : accepted;
    });
  }

  /** The log has no END for these; the construct that was opened last comes first. CHUNKs need none. */
  endings(): readonly JsonObject[] {
    const chunked = this.#lanes.clone().endAll();
    return this.#open
      .inOrder()
      .filter(({ kind, key }) => !chunked.some((one) => one.kind === kind && one.key === key))
      .map(endOf)
      .toReversed();
  }

  #opened(kind: OpenKind, event: StoredEvent): StoredEvent {
    const { value } = event;
    const tag = tagOf(value);
    if (kind === "tool_call") return this.#openedToolCall(event);
    const owned = OWNED[kind];
    if (owned === undefined) return event;
    const id = textOf(value["messageId"]) ?? "";
    const keepsTag =
      kind === "reasoning" ? this.#owners.openedSpan(id, tag) : this.#owners.opened(owned, id, tag);
    return keepsTag ? event : changed(without(value, "subagentRunId"));
  }

  #openedToolCall(event: StoredEvent): StoredEvent {
    const { value } = event;
    const { keepsTag, keepsParent } = this.#owners.toolCall({
      id: textOf(value["toolCallId"]) ?? "",
      name: textOf(value["toolCallName"]) ?? "",
      parentId: textOf(value["parentMessageId"]),
      tag: tagOf(value),
    });
    if (keepsTag && keepsParent) return event;
    const untagged = keepsTag ? value : without(value, "subagentRunId");
    return changed(keepsParent ? untagged : without(untagged, "parentMessageId"));
  }

  #append(
    out: EventCollector,
    owned: OwnedKind | undefined,
    id: string,
    { value, text }: StoredEvent,
  ): void {
    const tag = tagOf(value);
    if (tag === undefined || owned === undefined || this.#owners.agrees(owned, id, tag))
      out.add(value, text);
    else out.add(without(value, "subagentRunId"));
  }

  #encrypted(out: EventCollector, { value, text }: StoredEvent): void {
    const id = textOf(value["entityId"]) ?? "";
    const tag = tagOf(value);
    const agrees =
      value["subtype"] === "tool-call"
        ? this.#owners.agrees("tool_call", id, tag)
        : this.#owners.agrees("message", id, tag) && this.#owners.agrees("reasoning", id, tag);
    if (agrees) out.add(value, text);
    else out.add(without(value, "subagentRunId"));
  }

  #startOf(kind: OpenKind, key: string, fragment: JsonObject): JsonObject {
    const { start, idField, started } = KINDS[kind];
    const tag = tagOf(fragment);
    const name = kind === "tool_call" ? this.#owners.nameOf(key) : undefined;
    return {
      type: start,
      [idField]: key,
      ...started,
      ...(name !== undefined && { toolCallName: name }),
      ...(tag !== undefined && { subagentRunId: tag }),
    };
  }

  #close(out: EventCollector, construct: OpenConstruct, { suspends } = { suspends: false }): void {
    const { kind, key } = construct;
    this.#open.close(construct);
    if (kind === "tool_call") this.#repeated.delete(key);
    const value = out.timed({
      ...endOf(construct),
      ...(kind === "subagent" && suspends && { outcome: { type: "suspended" } }),
    });
    this.#append(out, OWNED[kind], key, changed(value));
  }

  #closeEach(out: EventCollector, chunked: readonly Chunked[]): void {
    for (const { kind, key } of chunked) if (isOpenKind(kind)) this.close(out, kind, key);
  }

  #isNewSubagent(id: string): boolean {
    const started = this.#startedSubagents;
    const isFull = started.size >= OPEN_IDS_MAX || this.#startedChars >= OPEN_CHARS_MAX;
    if (isFull || started.has(id)) return false;
    started.add(id);
    this.#startedChars += id.length;
    return true;
  }

  /** A client that joins has not seen ended parents, and would reject an event that names one. */
  #underOpenParent(event: StoredEvent): StoredEvent {
    const parentId = textOf(event.value["parentSubagentRunId"]);
    if (parentId === undefined || this.#open.get("subagent", parentId) !== undefined) return event;
    return changed(without(event.value, "parentSubagentRunId"));
  }
}

function endOf({ kind, opening }: OpenConstruct): JsonObject {
  const { end, idField } = KINDS[kind];
  const tag = tagOf(opening);
  return {
    type: end,
    [idField]: opening[idField],
    ...(tag !== undefined && { subagentRunId: tag }),
  };
}

function changed(value: JsonObject): StoredEvent {
  return { value, text: undefined };
}
