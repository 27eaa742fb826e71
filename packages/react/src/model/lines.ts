/**
 * The lines of a conversation: messages, runs and changes of the state, each with its past. A line
 * keeps its place, and a removed one stays as dead: a moment shows those that were alive then.
 */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import type { Item } from "./items.ts";
import { isSame } from "./state-diff.ts";
import { type At, withoutFields, Patches, Text, Track } from "./versions.ts";

/** Some lines that follow each other in the list of all (line-list.ts). */
export interface Block {
  lines: Line[];
  /** The lowest number at which one of them began. */
  firstSeq: number;
  changedSeq: number;
  /** What it shows after its last change. */
  items: readonly Item[] | undefined;
}

/** What a line remembers of the item that it was last. */
interface Made {
  readonly from: readonly unknown[];
  readonly item: Item;
}

export abstract class Line {
  readonly key: string;
  readonly born: number;
  died = Number.POSITIVE_INFINITY;
  readonly atMs: number;
  readonly runId: string;
  block: Block | undefined;
  #made: Made | undefined;

  constructor({ key, seq, atMs, runId }: Origin) {
    this.key = key;
    this.born = seq;
    this.atMs = atMs;
    this.runId = runId;
  }

  isAliveAt(seq: number): boolean {
    return this.born <= seq && seq < this.died;
  }

  /** The item that was made before, if its parts are the same, or the new item is equal to it. */
  made(from: readonly unknown[], make: () => Item): Item {
    const known = this.#made;
    if (known?.from.length === from.length && known.from.every((part, at) => part === from[at]))
      return known.item;
    const made = make();
    const item = known !== undefined && isSame(known.item, made) ? known.item : made;
    this.#made = { from, item };
    return item;
  }
}

export interface Origin {
  readonly key: string;
  readonly seq: number;
  readonly atMs: number;
  readonly runId: string;
}

/** When something happens, and in which run. */
type Now = Omit<Origin, "key">;

export class FixedLine<T> extends Line {
  readonly value: T;

  constructor(origin: Origin, value: T) {
    super(origin);
    this.value = value;
  }
}

export class StateLine extends Line {
  readonly changes = new Track<{
    readonly change: "snapshot" | "delta";
    readonly paths: readonly string[];
    readonly count: number;
    readonly lastSeq: number;
  }>();

  nextCount(): number {
    return (this.changes.last?.count ?? 0) + 1;
  }
}

interface CallVersion {
  /** The call without its arguments, if they are a text. */
  readonly fields: unknown;
  readonly args: Text | undefined;
  readonly isOpen: boolean;
  readonly settled: "done" | "failed" | "unanswered" | undefined;
}

export class CallLine extends Line {
  readonly #versions = new Track<CallVersion>();
  #argsLength: number | undefined;
  readonly id: unknown;

  constructor(origin: Origin, call: unknown) {
    super(origin);
    this.id = isObject(call) ? call["id"] : undefined;
    this.take(origin.seq, call);
  }

  take(seq: number, call: unknown): boolean {
    const last = this.#versions.last;
    const called = isObject(call) ? call["function"] : undefined;
    const given = isObject(called) ? called["arguments"] : undefined;
    const text = typeof given === "string" ? given : undefined;
    const args = text === undefined ? undefined : grown(last?.args, seq, text);
    const fields =
      args === undefined || !isObject(call) || !isObject(called)
        ? call
        : { ...withoutFields(call, ["function"]), function: withoutFields(called, ["arguments"]) };
    const hasGrown = this.#argsLength !== text?.length;
    this.#argsLength = text?.length;
    if (last !== undefined && last.args === args && isSame(last.fields, fields)) return hasGrown;
    const { isOpen = false, settled } = last ?? {};
    this.#versions.set(seq, { fields, args, isOpen, settled });
    return true;
  }

  write(seq: number, args: unknown): boolean {
    const known = this.#versions.last?.args;
    if (known === undefined || typeof args !== "string") return false;
    if (args.length !== known.newest.length) known.grow(seq, args);
    this.#argsLength = args.length;
    return true;
  }

  mark(seq: number, marks: Partial<Pick<CallVersion, "isOpen" | "settled">>): void {
    const last = this.#versions.last;
    if (last !== undefined) this.#versions.set(seq, { ...last, ...marks });
  }

  versionAt({ seq }: At): CallVersion | undefined {
    return this.#versions.at(seq);
  }

  /** The call as a transcript has it. */
  at(at: At): unknown {
    const { fields, args } = this.versionAt(at) ?? {};
    if (args === undefined || !isObject(fields)) return fields;
    const called = isObject(fields["function"]) ? fields["function"] : {};
    return { ...fields, function: { ...called, arguments: args.at(at) } };
  }
}

export interface MessageVersion {
  readonly fields: JsonObject;
  readonly content: Text | Patches | { readonly plain: unknown } | undefined;
  /** A later version may have more of them. */
  readonly calls: CallLine[] | undefined;
  readonly callCount: number;
  readonly isOpen: boolean;
}

export interface Called {
  readonly owner: MessageLine;
  readonly call: CallLine;
  readonly place: number;
}

/** Facts about a message that the message does not have. */
export interface MessageSource {
  readonly by: "person" | "agent";
  readonly seq: number;
  readonly sender: JsonObject | undefined;
}

const APPENDS: ReadonlySet<unknown> = new Set([
  "TEXT_MESSAGE_CONTENT",
  "REASONING_MESSAGE_CONTENT",
]);

export class MessageLine extends Line {
  readonly #versions = new Track<MessageVersion>();
  #content: unknown;
  #haveCallsChanged = false;
  readonly #onCall: (call: Called) => void;
  source: MessageSource | undefined;

  constructor(origin: Origin, onCall: (call: Called) => void) {
    super(origin);
    this.#onCall = onCall;
  }

  /**
   * The message after the event; undefined: a row of the messages' stream said it. True: the message
   * has changed.
   */
  take(now: Now, message: JsonObject, event: JsonObject | undefined): boolean {
    const { seq } = now;
    if (event !== undefined && this.#grow(seq, message, event)) return true;
    this.#haveCallsChanged = false;
    const last = this.#versions.last;
    const lengthBefore = last?.content instanceof Text ? last.content.newest.length : 0;
    const { content, toolCalls } = message;
    const version: MessageVersion = {
      fields: withoutFields(
        message,
        Array.isArray(toolCalls) ? ["content", "toolCalls"] : ["content"],
      ),
      content: this.#contentAfter(seq, message, event),
      calls: Array.isArray(toolCalls) ? this.#callsAfter(now, toolCalls, event) : undefined,
      callCount: Array.isArray(toolCalls) ? toolCalls.length : 0,
      isOpen: last?.isOpen ?? false,
    };
    this.#content = content;
    const isSameVersion =
      last !== undefined &&
      last.content === version.content &&
      last.calls === version.calls &&
      last.callCount === version.callCount &&
      isSame(last.fields, version.fields);
    if (!isSameVersion) this.#versions.set(seq, version);
    const { content: text } = version;
    const hasGrown =
      text instanceof Text ? text.newest.length !== lengthBefore : text instanceof Patches;
    return !isSameVersion || hasGrown || this.#haveCallsChanged;
  }

  mark(seq: number, isOpen: boolean): this {
    const last = this.#versions.last;
    if (last !== undefined && last.isOpen !== isOpen) this.#versions.set(seq, { ...last, isOpen });
    return this;
  }

  call(id: unknown): CallLine | undefined {
    const { calls, callCount = 0 } = this.#versions.last ?? {};
    const newest = calls?.[callCount - 1];
    return newest?.id === id ? newest : calls?.slice(0, callCount).find((one) => one.id === id);
  }

  get newest(): MessageVersion | undefined {
    return this.#versions.last;
  }

  versionAt({ seq }: At): MessageVersion | undefined {
    return this.#versions.at(seq);
  }

  callsAt(at: At): readonly CallLine[] {
    const { calls, callCount = 0 } = this.versionAt(at) ?? {};
    return calls?.length === callCount ? calls : (calls?.slice(0, callCount) ?? []);
  }

  hasAt({ call, place }: Called, at: At): boolean {
    if (!this.isAliveAt(at.seq)) return false;
    const { calls, callCount = 0 } = this.versionAt(at) ?? {};
    return place < callCount && calls?.[place] === call;
  }

  contentAt(at: At): unknown {
    const content = this.versionAt(at)?.content;
    if (content instanceof Text) return content.at(at);
    return content instanceof Patches ? content.at(at.seq) : content?.plain;
  }

  contentMark(at: At): unknown {
    const content = this.versionAt(at)?.content;
    if (content instanceof Text) return content.lengthAt(at);
    return content instanceof Patches ? content.at(at.seq) : undefined;
  }

  /** The message as a transcript has it, without feedback. */
  at(at: At): JsonObject {
    const version = this.versionAt(at);
    if (version === undefined) return {};
    const { fields, content, calls } = version;
    return {
      ...fields,
      ...(content !== undefined && { content: this.contentAt(at) }),
      ...(calls !== undefined && { toolCalls: this.callsAt(at).map((call) => call.at(at)) }),
    };
  }

  /** The usual case: the event has appended to a text, and has changed nothing else. */
  #grow(seq: number, { content, toolCalls }: JsonObject, event: JsonObject): boolean {
    if (event["metadata"] !== undefined) return false;
    if (event["type"] === "TOOL_CALL_ARGS") {
      const line = this.call(event["toolCallId"]);
      const call = Array.isArray(toolCalls) ? callIn(toolCalls, event["toolCallId"]) : undefined;
      const called = call?.["function"];
      return isObject(called) && (line?.write(seq, called["arguments"]) ?? false);
    }
    const known = this.#versions.last?.content;
    if (!APPENDS.has(event["type"]) || !(known instanceof Text)) return false;
    if (typeof content !== "string") return false;
    if (content.length !== known.newest.length) known.grow(seq, content);
    this.#content = content;
    return true;
  }

  #contentAfter(
    seq: number,
    { content, role }: JsonObject,
    event: JsonObject | undefined,
  ): MessageVersion["content"] {
    const known = this.#versions.last?.content;
    if (content === undefined) return undefined;
    if (typeof content === "string") {
      const appends = APPENDS.has(event?.["type"]);
      return grown(known instanceof Text ? known : undefined, seq, content, appends);
    }
    if (role === "activity") return this.#activityAfter(seq, content, event);
    const isKnown = known !== undefined && "plain" in known && isSame(known.plain, content);
    return isKnown ? known : { plain: content };
  }

  /** Deltas change the content of an activity in place, so it may be the same object. */
  #activityAfter(seq: number, content: unknown, event: JsonObject | undefined): Patches {
    const known = this.#versions.last?.content;
    const patches = known instanceof Patches ? known : new Patches();
    if (event?.["type"] === "ACTIVITY_DELTA" && known instanceof Patches)
      patches.patch(seq, event["patch"] ?? [], content);
    else if (known === undefined || content !== this.#content) patches.set(seq, content);
    return patches;
  }

  #callsAfter(now: Now, listed: readonly unknown[], event: JsonObject | undefined): CallLine[] {
    const { calls: known = [], callCount = 0 } = this.#versions.last ?? {};
    const isOfCall = String(event?.["type"]).startsWith("TOOL_CALL_");
    const id = isOfCall ? event?.["toolCallId"] : undefined;
    const changed = id === undefined ? 0 : listed.findLastIndex((one) => isWithId(one, id));
    const different = isOfCall
      ? -1
      : known.slice(0, callCount).findIndex((line, at) => !isWithId(listed[at], line.id));
    const unchanged = different === -1 ? Math.min(callCount, listed.length) : different;
    const calls = unchanged === known.length ? known : known.slice(0, unchanged);
    for (let at = Math.max(0, changed); at < listed.length; at += 1) {
      const call = listed[at];
      const line = calls[at];
      if (line === undefined) calls.push(this.#callLine(now, at, call));
      else if (line.take(now.seq, call)) this.#haveCallsChanged = true;
    }
    return calls;
  }

  #callLine(now: Now, at: number, call: unknown): CallLine {
    const line = new CallLine({ ...now, key: `${this.key}-call-${now.seq}-${at}` }, call);
    this.#onCall({ owner: this, call: line, place: at });
    return line;
  }
}

function isWithId(call: unknown, id: unknown): boolean {
  return isObject(call) ? call["id"] === id : id === undefined;
}

function callIn(calls: readonly unknown[], id: unknown): JsonObject | undefined {
  const newest: unknown = calls.at(-1);
  if (isObject(newest) && newest["id"] === id) return newest;
  return calls.filter(isObject).find((call) => call["id"] === id);
}

/** The text that has become `text`: the same one, if it has only grown. */
function grown(known: Text | undefined, seq: number, text: string, appends = true): Text {
  if (known?.newest === text) return known;
  const isLonger = known !== undefined && text.length > known.newest.length;
  if (known === undefined || !appends || !isLonger || !text.startsWith(known.newest))
    return new Text(seq, text);
  known.grow(seq, text);
  return known;
}
