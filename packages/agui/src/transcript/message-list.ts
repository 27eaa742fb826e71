/**
 * The messages of a transcript in order, with indexes to find one: AG-UI clients search the list
 * for every event. Ids may repeat; a look-up finds the first message, as in the clients. The list
 * is linked, because a tool's result is inserted after the message with its call.
 */
import { isObject, type JsonObject } from "../json.ts";
import type { Patched } from "./patched.ts";
import { charBytes, changedBytes, entryBytes, weightOf } from "./weight.ts";

export type Message = Record<string, unknown>;
type ToolCallObject = Record<string, unknown>;

/** A message in its place. */
export interface MessageEntry {
  message: Message;
  /** Bytes of the message and of its index entries. */
  bytes: number;
  /** For an activity that deltas have changed: holds the content of the message. */
  content: Patched | undefined;
  /** For a message that came as a row of the messages' stream: the writer of the row. */
  by: "person" | "agent" | undefined;
  previous: MessageEntry | undefined;
  next: MessageEntry | undefined;
  /** The last of the tool messages after this one, as far as the last search went. */
  lastResult: { readonly entry: MessageEntry; readonly epoch: number } | undefined;
}

/** The memory of an entry without its message: the entry, and its key in the map of ids. */
const ENTRY_BYTES = 200;

/** A node and a text of each appended piece: V8 keeps them as a tree until the text is read. */
const PIECE_BYTES = 64;

interface OwnedCall {
  readonly owner: MessageEntry;
  readonly call: ToolCallObject;
}

/** Learns which messages an event changes. The change may come after the call. */
export interface ListObserver {
  /** The entry is in its place. */
  added(entry: MessageEntry): void;
  changed(entry: MessageEntry): void;
  removed(entry: MessageEntry): void;
}

export class MessageList {
  observer: ListObserver | undefined;
  #first: MessageEntry | undefined;
  #last: MessageEntry | undefined;
  readonly #byId = new Index<MessageEntry>((entry) => entry);
  readonly #calls = new Index<OwnedCall>(({ owner }) => owner);
  /** Counts the changes that move the ends of the runs of results. */
  #epoch = 0;
  #array: readonly Message[] | undefined;
  #bytes = 0;
  #pieces = 0;

  /** The memory it holds, as weight.ts estimates it. */
  get bytes(): number {
    return this.#bytes + this.#pieces * PIECE_BYTES;
  }

  /** The message of the entry became larger, or smaller. */
  grow(entry: MessageEntry, bytes: number): void {
    entry.bytes += bytes;
    this.#bytes += bytes;
    this.observer?.changed(entry);
  }

  /** `chars` characters were appended to a text in the message of the entry. */
  growText(entry: MessageEntry, chars: number): void {
    this.grow(entry, charBytes(chars));
    this.#pieces += 1;
  }

  /** The first message with this id. */
  find(id: unknown): MessageEntry | undefined {
    if (this.#byId.isStale) this.#byId.fill(this.entries(), idOf);
    return this.#byId.get(id);
  }

  /** The first tool call with this id, in any message. */
  findCall(toolCallId: unknown): OwnedCall | undefined {
    if (this.#calls.isStale) this.#calls.fill(ownedCallsOf(this.entries()), callIdOf);
    return this.#calls.get(toolCallId);
  }

  /** The first such call in a message of an assistant. */
  findAssistantCall(toolCallId: unknown): OwnedCall | undefined {
    const found = this.findCall(toolCallId);
    if (found === undefined || isAssistant(found)) return found;
    // No version of the protocol lets another role have calls, but unknown fields are kept.
    for (const one of ownedCallsOf(this.entries())) {
      if (one.call["id"] === toolCallId && isAssistant(one)) return one;
    }
    return undefined;
  }

  push(message: Message): MessageEntry {
    const entry = entryOf(message);
    this.#link(entry, this.#last);
    this.#bytes += entry.bytes;
    this.#byId.append(message["id"], entry);
    for (const one of ownedCallsOf([entry])) this.#calls.append(callIdOf(one), one);
    return entry;
  }

  addCall(owner: MessageEntry, call: ToolCallObject): void {
    const before = owner.message["toolCalls"];
    const calls = (owner.message["toolCalls"] ??= []);
    if (!Array.isArray(calls)) return;
    if (calls !== before) this.grow(owner, changedBytes("toolCalls", { before, after: calls }));
    calls.push(call);
    this.grow(owner, entryBytes(0) + weightOf(call).bytes + ENTRY_BYTES);
    this.#calls.append(call["id"], { owner, call });
  }

  /** Inserts after the message that called the tool, and after its existing results. */
  insertResult(owner: MessageEntry, message: Message): MessageEntry {
    const existing = owner.lastResult;
    let last = existing?.epoch === this.#epoch ? existing.entry : owner;
    while (last.next !== undefined && isResult(last.next.message)) last = last.next;
    const entry = entryOf(message);
    this.#link(entry, last);
    this.#bytes += entry.bytes;
    owner.lastResult = { entry, epoch: this.#epoch };
    const twin = this.#byId.get(message["id"]);
    this.#byId.append(message["id"], entry);
    // Results come near the end, so this walk is short; the twin is mostly the message that called.
    if (twin !== undefined && isBefore(entry, twin)) this.#byId.invalidate();
    return entry;
  }

  /** Removes the agent's rows at the end, after the last row of a user. */
  dropAgentsRows(): void {
    for (let entry = this.#last; entry !== undefined; entry = entry.previous) {
      if (entry.by === "person") return;
      if (entry.by === "agent") this.remove(entry);
    }
  }

  /** Replaces a message by one with the same id. `bytes`: its weight, if it is known. */
  replace(entry: MessageEntry, message: Message, bytes = messageBytes(message)): void {
    this.grow(entry, bytes - entry.bytes);
    for (const one of ownedCallsOf([entry])) this.#calls.remove(callIdOf(one), entry);
    if (isResult(entry.message) !== isResult(message)) this.#epoch += 1;
    entry.message = message;
    entry.content = undefined;
    for (const one of ownedCallsOf([entry])) this.#calls.insert(callIdOf(one), one);
    this.#array = undefined;
  }

  remove(entry: MessageEntry): void {
    const { previous, next } = entry;
    this.#bytes -= entry.bytes;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    this.#byId.remove(entry.message["id"], entry);
    for (const one of ownedCallsOf([entry])) this.#calls.remove(callIdOf(one), entry);
    this.#epoch += 1;
    this.#array = undefined;
    this.observer?.removed(entry);
  }

  /** Entries in order; the entry that was yielded last may be removed meanwhile. */
  *entries(): Generator<MessageEntry> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield entry;
  }

  /** The messages for serialisation, which joins the pieces of each text. */
  toArray(): readonly Message[] {
    this.#pieces = 0;
    this.#array ??= Array.from(this.entries(), ({ message }) => message);
    return this.#array;
  }

  #link(entry: MessageEntry, previous: MessageEntry | undefined): void {
    const next = previous === undefined ? this.#first : previous.next;
    entry.previous = previous;
    entry.next = next;
    if (previous === undefined) this.#first = entry;
    else previous.next = entry;
    if (next === undefined) this.#last = entry;
    else next.previous = entry;
    this.#array = undefined;
    this.observer?.added(entry);
  }
}

/**
 * The first value of each id. Only for ids that occur twice does the order matter. A change before
 * such a value makes the index stale, and the next look-up fills it again.
 */
class Index<T> {
  readonly #entryOf: (value: T) => MessageEntry;
  readonly #firsts = new Map<unknown, T>();
  #hasTwins = false;
  #isStale = false;

  constructor(entryOfValue: (value: T) => MessageEntry) {
    this.#entryOf = entryOfValue;
  }

  get isStale(): boolean {
    return this.#isStale;
  }

  get(id: unknown): T | undefined {
    return this.#firsts.get(id);
  }

  /** Adds after all others. */
  append(id: unknown, value: T): void {
    if (this.#firsts.has(id)) this.#hasTwins = true;
    else this.#firsts.set(id, value);
  }

  /** Adds at any place. */
  insert(id: unknown, value: T): void {
    const existing = this.#firsts.get(id);
    this.append(id, value);
    if (existing !== undefined && this.#entryOf(existing) !== this.#entryOf(value))
      this.#isStale = true;
  }

  invalidate(): void {
    this.#isStale = true;
  }

  remove(id: unknown, entry: MessageEntry): void {
    const existing = this.#firsts.get(id);
    if (existing !== undefined && this.#entryOf(existing) === entry) this.#firsts.delete(id);
    this.#isStale ||= this.#hasTwins;
  }

  fill(values: Iterable<T>, idOfValue: (value: T) => unknown): void {
    this.#firsts.clear();
    this.#hasTwins = false;
    this.#isStale = false;
    for (const value of values) this.append(idOfValue(value), value);
  }
}

/** A copy that may be changed, without a null attribution, which counts as none for clients. */
export function adopted(message: JsonObject): Message {
  const { subagentRunId, ...rest } = message;
  const copy: Message = subagentRunId === null ? rest : { ...message };
  const calls = message["toolCalls"];
  if (Array.isArray(calls)) copy["toolCalls"] = calls.map(adoptedCall);
  return copy;
}

function adoptedCall(call: unknown): unknown {
  if (!isObject(call)) return call;
  const { function: called } = call;
  return isObject(called) ? { ...call, function: { ...called } } : { ...call };
}

function* ownedCallsOf(owners: Iterable<MessageEntry>): Generator<OwnedCall> {
  for (const owner of owners) {
    const { toolCalls } = owner.message;
    if (!Array.isArray(toolCalls)) continue;
    for (const call of toolCalls) if (isObject(call)) yield { owner, call };
  }
}

function isBefore(entry: MessageEntry, other: MessageEntry): boolean {
  for (let later = entry.next; later !== undefined; later = later.next) {
    if (later === other) return true;
  }
  return false;
}

function idOf({ message }: MessageEntry): unknown {
  return message["id"];
}

function callIdOf({ call }: OwnedCall): unknown {
  return call["id"];
}

function isResult(message: Message): boolean {
  return message["role"] === "tool";
}

function isAssistant({ owner }: OwnedCall): boolean {
  return owner.message["role"] === "assistant";
}

function messageBytes(message: Message): number {
  const { toolCalls } = message;
  const calls = Array.isArray(toolCalls) ? toolCalls.length : 0;
  return weightOf(message).bytes + ENTRY_BYTES * (1 + calls);
}

function entryOf(message: Message): MessageEntry {
  return {
    message,
    bytes: messageBytes(message),
    content: undefined,
    by: undefined,
    previous: undefined,
    next: undefined,
    lastResult: undefined,
  };
}
