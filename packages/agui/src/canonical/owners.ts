/**
 * The owners of messages, tool calls, activities and reasoning, as AG-UI clients see them: a
 * subagent, or the agent. A client refuses an event whose `subagentRunId` differs from that of its
 * construct, and always accepts one without it. So this class decides whether an event keeps the
 * field.
 *
 * A client from the beginning forgets owners at each RUN_STARTED; one that joined has those of its
 * snapshot, of earlier runs too. An owner is noted once for both, with the run in which the first
 * kind received it. When the two would know different owners, it is disputed, and every event of
 * that id goes out without the field.
 */
import { isObject, textOf } from "../json.ts";
import { charBytes } from "../transcript/weight.ts";

/** Noted ids of one session; above this, new ids go out without `subagentRunId`. */
export const OWNED_IDS_MAX = 10_000;
/** Characters of the ids, of their owners, and of the names of tools. */
const OWNED_CHARS_MAX = 1_048_576;
const OWNED_BYTES = 200;

export type OwnedKind = "message" | "tool_call" | "activity" | "reasoning";

const DISPUTED = Symbol("disputed");

interface Owned {
  /** Undefined: the agent itself. */
  readonly owner: string | undefined | typeof DISPUTED;
  /** The last run or snapshot in which a client from the beginning received it; NEVER: none. */
  readonly run: number;
  /** The name of the tool, for a tool call. */
  readonly name: string | undefined;
}

const NEVER = -1;

type Owners = Readonly<Record<OwnedKind, Map<string, Owned>>>;

interface StartedToolCall {
  readonly id: string;
  readonly name: string;
  readonly parentId: string | undefined;
  readonly tag: string | undefined;
}

export class Ownership {
  #owners: Owners;
  #isShared = false;
  /** Ids of reasoning in this run that has no message yet. */
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
    this.#isShared = true; // The next write, on either side, makes a copy first.
    copy.#spans = new Set(this.#spans);
    copy.#run = this.#run;
    copy.#ids = this.#ids;
    copy.#chars = this.#chars;
    return copy;
  }

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

  /** A REASONING_START: no message has its id yet, and no message will have it in the next run. */
  openedSpan(id: string, tag: string | undefined): boolean {
    if (!this.#owners.reasoning.has(id) && !this.#isFull) this.#spans.add(id);
    return this.#openedAs("reasoning", id, tag);
  }

  /** An event opens the id. Returns whether it may keep its tag. */
  opened(kind: OwnedKind, id: string, tag: string | undefined): boolean {
    const hadNoMessage = kind === "reasoning" && this.#spans.delete(id);
    const keepsTag = this.#openedAs(kind, id, tag);
    // A client that joins learns the owner from the message, and not from the reasoning around it.
    if (hadNoMessage) this.#merge(kind, id, keepsTag ? tag : undefined);
    return keepsTag;
  }

  #openedAs(kind: OwnedKind, id: string, tag: string | undefined): boolean {
    const existing = this.#owners[kind].get(id);
    if (existing === undefined) return this.#note(kind, id, tag) || tag === undefined;
    const agrees = tag !== undefined && existing.owner === tag;
    if (existing.run !== this.#run) this.#merge(kind, id, agrees ? tag : undefined);
    return agrees || tag === undefined;
  }

  /** An event continues or ends the id. Returns whether it may keep its tag. */
  agrees(kind: OwnedKind, id: string, tag: string | undefined): boolean {
    if (tag === undefined) return true;
    const existing = this.#owners[kind].get(id);
    return existing === undefined ? !this.#isFull : existing.owner === tag;
  }

  /** The subagent of the reasoning, if no client would know another owner. */
  subagentOfReasoning(id: string): string | undefined {
    const owner = this.#owners.reasoning.get(id)?.owner;
    return typeof owner === "string" ? owner : undefined;
  }

  /** An event makes a whole message; it may have any tag. */
  made(id: string, tag: string | undefined): void {
    this.#merge("message", id, tag);
  }

  /** An ACTIVITY_SNAPSHOT; it may have any tag. */
  activity(
    id: string,
    tag: string | undefined,
    { replaces }: { readonly replaces: boolean },
  ): void {
    const existing = this.#owners.activity.get(id);
    if (existing !== undefined && replaces)
      this.#set("activity", id, { ...existing, owner: tag, run: this.#run });
    else if (existing?.run !== this.#run) this.#merge("activity", id, tag);
  }

  /** Whether a TOOL_CALL_START may keep its tag and its parent. */
  toolCall(call: StartedToolCall): { readonly keepsTag: boolean; readonly keepsParent: boolean } {
    const { id, name, parentId, tag } = call;
    const existing = this.#owners.tool_call.get(id);
    const parent = parentId === undefined ? undefined : this.#owners.message.get(parentId);
    const isOfParent =
      parent === undefined ? parentId === undefined || !this.#isFull : parent.owner === tag;
    const isOfCall = existing === undefined ? !this.#isFull : existing.owner === tag;
    const keepsTag = tag === undefined || (isOfParent && isOfCall);
    const ownTag = keepsTag ? tag : undefined;
    // A call without a tag gets the owner of its parent, which must be the call's earlier owner.
    const keepsParent =
      ownTag !== undefined ||
      existing === undefined ||
      parent === undefined ||
      (existing.owner !== DISPUTED && existing.owner === parent.owner);
    const inherited = keepsParent && parent?.run === this.#run ? parent.owner : undefined;
    const owner = ownTag ?? inherited;
    if (existing === undefined) {
      // A client that joins gives the call the owner of the message that holds it. That message is
      // the parent, or was made for the call and names the call's owner, except where a message
      // with that id existed before.
      const isSame = ownTag === undefined ? parent?.owner === undefined : !this.#isMessage(id);
      this.#note("tool_call", id, isSame ? owner : DISPUTED, name);
      // The call's message may be separate: a client from the beginning does not learn its owner.
      if (parentId !== undefined && parent?.run !== this.#run)
        this.#merge("message", parentId, ownTag, NEVER);
      this.#merge("message", id, ownTag, NEVER);
    } else {
      if (existing.run !== this.#run) this.#merge("tool_call", id, owner);
      this.#name(id, name);
    }
    return { keepsTag, keepsParent };
  }

  #isMessage(id: string): boolean {
    const { message, reasoning, activity } = this.#owners;
    return message.has(id) || reasoning.has(id) || activity.has(id);
  }

  /** Whether a message ever had this id; above the limits "no" also for some that had it. */
  hasHadMessage(id: string): boolean {
    return this.#owners.message.has(id);
  }

  /** Whether an activity ever existed; above the limits the answer is "yes". */
  get hadActivities(): boolean {
    return this.#owners.activity.size > 0 || this.#isFull;
  }

  nameOf(toolCallId: string): string | undefined {
    return this.#owners.tool_call.get(toolCallId)?.name;
  }

  /** A MESSAGES_SNAPSHOT: removed messages are created again, and their owners sent again. */
  replaced(messages: unknown): void {
    this.#run += 1;
    this.addMessages(messages);
  }

  /** The messages of a snapshot, or of a run's input. */
  addMessages(messages: unknown): void {
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
    const existing = this.#owners[kind].get(id);
    if (existing === undefined) {
      this.#note(kind, id, owner, undefined, run);
      return;
    }
    const agreed = existing.owner === owner ? owner : DISPUTED;
    const latestRun = Math.max(run, existing.run);
    if (agreed !== existing.owner || latestRun !== existing.run)
      this.#set(kind, id, { ...existing, owner: agreed, run: latestRun });
  }

  #name(toolCallId: string, name: string): void {
    const existing = this.#owners.tool_call.get(toolCallId);
    const isLonger = name.length > (existing?.name?.length ?? 0);
    if (existing !== undefined && existing.name !== name && !(isLonger && this.#isFull))
      this.#set("tool_call", toolCallId, { ...existing, name });
  }

  /** False: the limits are reached. */
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
