/**
 * Whom messages, tool calls, activities and reasoning belong to, as AG-UI clients take it: to a
 * subagent, or to the agent itself. A client refuses an event whose `subagentRunId` is not its
 * construct's, and an event without one it always takes; so what is told here is whether an event may
 * keep it. The reducers read it only where an event makes a message; anywhere else it can go.
 *
 * Clients do not know the same. One that was there from the beginning forgets at each RUN_STARTED; one
 * that joined has what it read in the snapshot, which was made of earlier runs too. An owner is noted
 * here once for both, with the run in which the first of them was told; where the two would have been
 * told different ones it is disputed, and everything about that id goes without.
 */
import { isObject } from "../../agui/json.ts";
import { charBytes } from "../transcript/weight.ts";
import { textOf } from "./event.ts";

/** Noted of a session: past it, what is new goes without `subagentRunId`. */
export const OWNED_IDS_MAX = 10_000;
/** Of ids, of whom they belong to, and of the names of tools. */
const OWNED_CHARS_MAX = 1_048_576;
const OWNED_BYTES = 200;

export type OwnedKind = "message" | "tool_call" | "activity" | "reasoning";

const DISPUTED = Symbol("disputed");

interface Owned {
  /** Undefined: the agent itself. */
  readonly owner: string | undefined | typeof DISPUTED;
  /** When a client from the beginning was told last, in runs and snapshots; NEVER: it was not. */
  readonly run: number;
  /** Of a tool call. */
  readonly name: string | undefined;
}

const NEVER = -1;

type Owners = Readonly<Record<OwnedKind, Map<string, Owned>>>;

export interface StartedToolCall {
  readonly id: string;
  readonly name: string;
  readonly parentId: string | undefined;
  readonly tag: string | undefined;
}

export class Ownership {
  #owners: Owners;
  #isShared = false;
  /** Ids of reasoning that has no message in it yet, of this run. */
  #spans: Set<string> = new Set();
  #run = 0;
  #ids = 0;
  #chars = 0;

  constructor() {
    this.#owners = copied();
  }

  clone(): Ownership {
    const copy = new Ownership();
    copy.#owners = this.#owners;
    copy.#isShared = true;
    this.#isShared = true; // Whoever writes first takes a copy.
    copy.#spans = new Set(this.#spans);
    copy.#run = this.#run;
    copy.#ids = this.#ids;
    copy.#chars = this.#chars;
    return copy;
  }

  /** What it takes of memory, about. */
  get bytes(): number {
    return this.#ids * OWNED_BYTES + charBytes(this.#chars);
  }

  beginRun(): void {
    this.#run += 1;
    for (const id of this.#spans) {
      this.#chars -= charsOf(id, this.#owners.reasoning.get(id));
      this.#writable().reasoning.delete(id);
      this.#ids -= 1;
    }
    this.#spans.clear();
  }

  /** A REASONING_START: its id is nobody's message yet, and none has it in the next run. */
  openedSpan(id: string, tag: string | undefined): boolean {
    if (!this.#owners.reasoning.has(id) && !this.#isFull) this.#spans.add(id);
    return this.#openedAs("reasoning", id, tag);
  }

  /** An event opens the id. Whether it may keep its tag. */
  opened(kind: OwnedKind, id: string, tag: string | undefined): boolean {
    const hadNoMessage = kind === "reasoning" && this.#spans.delete(id);
    const keepsTag = this.#openedAs(kind, id, tag);
    // Who joins is told by the message, and not by the reasoning around it.
    if (hadNoMessage) this.#merge(kind, id, keepsTag ? tag : undefined);
    return keepsTag;
  }

  #openedAs(kind: OwnedKind, id: string, tag: string | undefined): boolean {
    const known = this.#owners[kind].get(id);
    if (known === undefined) return this.#note(kind, id, tag) || tag === undefined;
    const agrees = tag !== undefined && known.owner === tag;
    if (known.run !== this.#run) this.#merge(kind, id, agrees ? tag : undefined);
    return agrees || tag === undefined;
  }

  /** An event goes on with the id, or ends it. Whether it may keep its tag. */
  agrees(kind: OwnedKind, id: string, tag: string | undefined): boolean {
    if (tag === undefined) return true;
    const known = this.#owners[kind].get(id);
    return known === undefined ? !this.#isFull : known.owner === tag;
  }

  /** The subagent that reasoning is of, where nobody would say otherwise. */
  subagentOfReasoning(id: string): string | undefined {
    const owner = this.#owners.reasoning.get(id)?.owner;
    return typeof owner === "string" ? owner : undefined;
  }

  /** An event makes a message by itself; it may have any tag. */
  made(id: string, tag: string | undefined): void {
    this.#merge("message", id, tag);
  }

  /** An ACTIVITY_SNAPSHOT; it may have any tag. */
  activity(
    id: string,
    tag: string | undefined,
    { replaces }: { readonly replaces: boolean },
  ): void {
    const known = this.#owners.activity.get(id);
    if (known !== undefined && replaces)
      this.#set("activity", id, { ...known, owner: tag, run: this.#run });
    else if (known?.run !== this.#run) this.#merge("activity", id, tag);
  }

  /** What of its tag and its parent a TOOL_CALL_START may keep. */
  toolCall(call: StartedToolCall): { readonly keepsTag: boolean; readonly keepsParent: boolean } {
    const { id, name, parentId, tag } = call;
    const known = this.#owners.tool_call.get(id);
    const parent = parentId === undefined ? undefined : this.#owners.message.get(parentId);
    const isOfParent =
      parent === undefined ? parentId === undefined || !this.#isFull : parent.owner === tag;
    const isOfCall = known === undefined ? !this.#isFull : known.owner === tag;
    const keepsTag = tag === undefined || (isOfParent && isOfCall);
    const kept = keepsTag ? tag : undefined;
    // Without a tag the call is its parent's, which has to be whose it was before.
    const keepsParent =
      kept !== undefined ||
      known === undefined ||
      parent === undefined ||
      (known.owner !== DISPUTED && known.owner === parent.owner);
    const inherited = keepsParent && parent?.run === this.#run ? parent.owner : undefined;
    const told = kept ?? inherited;
    if (known === undefined) {
      // Who joins takes it for that of the message that it is in, if that is the parent, or was made
      // for it and says whose it is, which it does not where there was one by that name.
      const isSame = kept === undefined ? parent?.owner === undefined : !this.#isMessage(id);
      this.#note("tool_call", id, isSame ? told : DISPUTED, name);
      // The message that the call is in, which may be one of its own: a client from the beginning is
      // not told whose that is.
      if (parentId !== undefined && parent?.run !== this.#run)
        this.#merge("message", parentId, kept, NEVER);
      this.#merge("message", id, kept, NEVER);
    } else {
      if (known.run !== this.#run) this.#merge("tool_call", id, told);
      this.#name(id, name);
    }
    return { keepsTag, keepsParent };
  }

  #isMessage(id: string): boolean {
    const { message, reasoning, activity } = this.#owners;
    return message.has(id) || reasoning.has(id) || activity.has(id);
  }

  /** Whether a message had this id at any time. Past the limits it also says no of some that had. */
  hasHadMessage(id: string): boolean {
    return this.#owners.message.has(id);
  }

  /** Whether there was an activity at any time; past the limits it cannot be told, and may be so. */
  get hadActivities(): boolean {
    return this.#owners.activity.size > 0 || this.#isFull;
  }

  nameOf(toolCallId: string): string | undefined {
    return this.#owners.tool_call.get(toolCallId)?.name;
  }

  /** A MESSAGES_SNAPSHOT: what it takes away is made anew, and says anew whose it is. */
  replaced(messages: unknown): void {
    this.#run += 1;
    this.told(messages);
  }

  /** The messages of a snapshot, or of a run's input. */
  told(messages: unknown): void {
    if (!Array.isArray(messages)) return;
    for (const message of messages as readonly unknown[]) {
      if (!isObject(message)) continue;
      const { id, role, subagentRunId, toolCalls } = message;
      if (typeof id !== "string") continue;
      const kind = role === "reasoning" || role === "activity" ? role : "message";
      const owner = textOf(subagentRunId);
      if (kind === "reasoning") this.#spans.delete(id);
      this.#merge(kind, id, owner);
      if (!Array.isArray(toolCalls)) continue;
      for (const call of toolCalls as readonly unknown[]) {
        if (!isObject(call) || typeof call["id"] !== "string") continue;
        this.#merge("tool_call", call["id"], owner);
        const called = call["function"];
        const name = isObject(called) ? textOf(called["name"]) : undefined;
        if (name !== undefined) this.#name(call["id"], name);
      }
    }
  }

  get #isFull(): boolean {
    return this.#ids >= OWNED_IDS_MAX || this.#chars >= OWNED_CHARS_MAX;
  }

  #merge(kind: OwnedKind, id: string, owner: Owned["owner"], run = this.#run): void {
    const known = this.#owners[kind].get(id);
    if (known === undefined) {
      this.#note(kind, id, owner, undefined, run);
      return;
    }
    const agreed = known.owner === owner ? owner : DISPUTED;
    const told = Math.max(run, known.run);
    if (agreed !== known.owner || told !== known.run)
      this.#set(kind, id, { ...known, owner: agreed, run: told });
  }

  #name(toolCallId: string, name: string): void {
    const known = this.#owners.tool_call.get(toolCallId);
    const isLonger = name.length > (known?.name?.length ?? 0);
    if (known !== undefined && known.name !== name && !(isLonger && this.#isFull))
      this.#set("tool_call", toolCallId, { ...known, name });
  }

  /** Whether there was room for it. */
  #note(
    kind: OwnedKind,
    id: string,
    owner: Owned["owner"],
    name?: string,
    run = this.#run,
  ): boolean {
    if (this.#isFull) return false;
    this.#set(kind, id, { owner, run, name });
    this.#ids += 1;
    return true;
  }

  #set(kind: OwnedKind, id: string, owned: Owned): void {
    this.#chars += charsOf(id, owned) - charsOf(id, this.#owners[kind].get(id));
    this.#writable()[kind].set(id, owned);
  }

  #writable(): Owners {
    if (this.#isShared) {
      this.#owners = copied(this.#owners);
      this.#isShared = false;
    }
    return this.#owners;
  }
}

function charsOf(id: string, owned: Owned | undefined): number {
  if (owned === undefined) return 0;
  const { owner, name } = owned;
  return id.length + (typeof owner === "string" ? owner.length : 0) + (name?.length ?? 0);
}

function copied(owners?: Owners): Owners {
  return {
    message: new Map(owners?.message),
    tool_call: new Map(owners?.tool_call),
    activity: new Map(owners?.activity),
    reasoning: new Map(owners?.reasoning),
  };
}
