/**
 * The messages of a transcript, in their order, with what is needed to find one without looking
 * through them all: the AG-UI clients search the list for every event, which is why a session takes
 * them quadratic time.
 *
 * Ids need not be unique: a result may have the id of a message that is there, a snapshot may have an
 * id twice. Whoever looks for an id finds the first in order, as the clients do. The list is linked,
 * because a tool's result goes behind the message that called it, wherever that stands.
 */
import { isObject, type JsonObject } from "../json.ts";
import type { Patched } from "./patched.ts";

export type Message = Record<string, unknown>;
export type ToolCall = Record<string, unknown>;

/** A message in its place. */
export interface Entry {
  message: Message;
  /** Of an activity that deltas have changed: holds the content of the message. */
  content: Patched | undefined;
  previous: Entry | undefined;
  next: Entry | undefined;
  /** The last of the tool messages that follow, as far as it was ever looked for. */
  lastResult: { readonly entry: Entry; readonly epoch: number } | undefined;
}

export interface OwnedCall {
  readonly owner: Entry;
  readonly call: ToolCall;
}

export class MessageList {
  #first: Entry | undefined;
  #last: Entry | undefined;
  #byId = new Map<unknown, Entry>();
  #calls = new Map<unknown, OwnedCall>();
  /** Counts the times that a role may have changed, which moves the ends of the runs of results. */
  #epoch = 0;
  #array: readonly Message[] | undefined;

  /** The first with this id. */
  find(id: unknown): Entry | undefined {
    return this.#byId.get(id);
  }

  /** The first tool call with this id, in whatever message. */
  findCall(toolCallId: unknown): OwnedCall | undefined {
    return this.#calls.get(toolCallId);
  }

  /** The first in a message of an assistant. */
  findAssistantCall(toolCallId: unknown): OwnedCall | undefined {
    const found = this.#calls.get(toolCallId);
    if (found === undefined || found.owner.message["role"] === "assistant") return found;
    // No version of the protocol lets another role have calls, but unknown fields are kept.
    for (const owner of this.entries()) {
      const call = callsOf(owner.message).find(({ id }) => id === toolCallId);
      if (call !== undefined && owner.message["role"] === "assistant") return { owner, call };
    }
    return undefined;
  }

  push(message: Message): Entry {
    const entry = entryOf(message);
    this.#link(entry, this.#last);
    if (!this.#byId.has(message["id"])) this.#byId.set(message["id"], entry);
    this.#indexCalls(entry);
    return entry;
  }

  addCall(owner: Entry, call: ToolCall): void {
    const { message } = owner;
    const calls = (message["toolCalls"] ??= []);
    if (!Array.isArray(calls)) return;
    calls.push(call);
    this.#calls.set(call["id"], { owner, call });
  }

  /** Behind the message that called the tool, and behind the results that follow it already. */
  insertResult(owner: Entry, message: Message): void {
    const known = owner.lastResult;
    let last = known?.epoch === this.#epoch ? known.entry : owner;
    while (last.next?.message["role"] === "tool") last = last.next;
    const entry = entryOf(message);
    this.#link(entry, last);
    owner.lastResult = { entry, epoch: this.#epoch };
    const other = this.#byId.get(message["id"]);
    if (other === undefined || isBefore(entry, other)) this.#byId.set(message["id"], entry);
  }

  /** Another message in the same place, with the same id. */
  replace(entry: Entry, message: Message): void {
    const hadCalls = callsOf(entry.message).length > 0;
    entry.message = message;
    entry.content = undefined;
    this.#epoch += 1;
    this.#array = undefined;
    if (!hadCalls) return;
    this.#calls = new Map();
    for (const one of this.entries()) this.#indexCalls(one);
  }

  /** These instead of all that were there. */
  reset(messages: Iterable<Pick<Entry, "message" | "content">>): void {
    this.#first = undefined;
    this.#last = undefined;
    this.#byId = new Map();
    this.#calls = new Map();
    this.#array = undefined;
    for (const { message, content } of messages) this.push(message).content = content;
  }

  *entries(): Generator<Entry> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield entry;
  }

  toArray(): readonly Message[] {
    this.#array ??= Array.from(this.entries(), ({ message }) => message);
    return this.#array;
  }

  #link(entry: Entry, previous: Entry | undefined): void {
    const next = previous === undefined ? this.#first : previous.next;
    entry.previous = previous;
    entry.next = next;
    if (previous === undefined) this.#first = entry;
    else previous.next = entry;
    if (next === undefined) this.#last = entry;
    else next.previous = entry;
    this.#array = undefined;
  }

  #indexCalls(owner: Entry): void {
    for (const call of callsOf(owner.message)) {
      if (!this.#calls.has(call["id"])) this.#calls.set(call["id"], { owner, call });
    }
  }
}

/**
 * A message of an event, to be changed from here on; what the event has stays as it is. A null
 * attribution is none, as for the clients.
 */
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

function callsOf({ toolCalls }: Message): readonly ToolCall[] {
  return Array.isArray(toolCalls) ? toolCalls.filter(isObject) : [];
}

function entryOf(message: Message): Entry {
  return {
    message,
    content: undefined,
    previous: undefined,
    next: undefined,
    lastResult: undefined,
  };
}

/** Results come near the end, so this looks from there; only two messages of one id ever ask. */
function isBefore(entry: Entry, other: Entry): boolean {
  for (let later = entry.next; later !== undefined; later = later.next) {
    if (later === other) return true;
  }
  return false;
}
