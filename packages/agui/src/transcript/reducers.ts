/** The effect of each event on the messages of a transcript: texts, tool calls, activities, snapshots. */
import { isObject, type JsonObject, textOf } from "../json.ts";
import { adopted, type MessageEntry, type Message, type MessageList } from "./message-list.ts";
import { Patched, type PatchedLimits } from "./patched.ts";
import { changedBytes, entryBytes, setOwn, weightOf } from "./weight.ts";

/** The parts that events of messages, tool calls and activities change. */
export interface Reduction {
  readonly list: MessageList;
  readonly metadata: Metadata;
  readonly patchedLimits: PatchedLimits;
}

/** The subagent that an event names, for the message that the event opens. */
function attribution({ subagentRunId }: JsonObject): { readonly subagentRunId?: unknown } {
  return subagentRunId === undefined || subagentRunId === null ? {} : { subagentRunId };
}

/**
 * The metadata of events, merged onto the message or call that they build, in place: a copy for
 * each fragment would be quadratic. The last value of a key wins. Returns the bytes that it grew
 * by.
 */
export class Metadata {
  readonly #own = new WeakMap<object, Record<string, unknown>>();

  gather(target: Record<string, unknown>, { metadata }: JsonObject): number {
    if (!isObject(metadata)) return 0;
    const existing = target["metadata"];
    const own = isObject(existing) ? this.#own.get(existing) : undefined;
    if (own !== undefined) {
      let bytes = 0;
      for (const [key, value] of Object.entries(metadata)) {
        const before = Object.hasOwn(own, key) ? own[key] : undefined;
        bytes += changedBytes(key, { before, after: value });
        setOwn(own, key, value);
      }
      return bytes;
    }
    const first = { ...(isObject(existing) ? existing : {}), ...metadata };
    this.#own.set(first, first);
    target["metadata"] = first;
    return changedBytes("metadata", { before: existing, after: first });
  }
}

/** Messages that arrive as text: START, CONTENT and END, of an answer and of reasoning alike. */
export function startText(reduction: Reduction, event: JsonObject): void {
  const { role = "assistant", name } = event;
  const named = name === undefined ? {} : { name };
  start(reduction, event, { role, content: "", ...named, ...attribution(event) });
}

export function startReasoning(reduction: Reduction, event: JsonObject): void {
  start(reduction, event, { role: "reasoning", content: "", ...attribution(event) });
}

/** Content that is not text (the parts of a user's message) is replaced by the text. */
export function addText({ list, metadata }: Reduction, event: JsonObject): void {
  const entry = textEntry({ list }, event);
  const delta = textOf(event["delta"]);
  if (entry === undefined || delta === undefined) return;
  const { message } = entry;
  const { content } = message;
  if (typeof content === "string") {
    message["content"] = content + delta;
    list.growText(entry, delta.length);
  } else {
    message["content"] = delta;
    list.grow(entry, changedBytes("content", { before: content, after: delta }));
  }
  list.grow(entry, metadata.gather(message, event));
}

export function endText({ list, metadata }: Reduction, event: JsonObject): void {
  const entry = textEntry({ list }, event);
  if (entry !== undefined) list.grow(entry, metadata.gather(entry.message, event));
}

/** An existing message keeps its fields: a tool call may have opened it, or an earlier run. */
function start({ list, metadata }: Reduction, event: JsonObject, opened: Message): void {
  const id = textOf(event["messageId"]);
  if (id === undefined) return;
  const existing = list.find(id);
  if (existing?.message["role"] === "activity") return;
  const entry = existing ?? list.push({ id, ...opened });
  list.grow(entry, metadata.gather(entry.message, event));
}

/** An activity's content is not text, and stays when a text arrives under its id. */
function textEntry({ list }: Pick<Reduction, "list">, event: JsonObject): MessageEntry | undefined {
  const entry = list.find(event["messageId"]);
  return entry?.message["role"] === "activity" ? undefined : entry;
}

/** Tool calls, which belong to a message of the assistant, and results, which are messages. */

/** An existing call is not opened again: its name is corrected, its arguments stay. */
export function startCall({ list, metadata }: Reduction, event: JsonObject): void {
  const id = textOf(event["toolCallId"]);
  if (id === undefined) return;
  const name = event["toolCallName"];
  const existing = list.findCall(id);
  if (existing !== undefined) {
    const called = functionOf(existing.call);
    if (called !== undefined) {
      list.grow(existing.owner, changedBytes("name", { before: called["name"], after: name }));
      called["name"] = name;
    }
    list.grow(existing.owner, metadata.gather(existing.call, event));
    return;
  }
  const call = { id, type: "function", function: { name, arguments: "" } };
  const owner = ownerOf({ list }, event, id);
  list.addCall(owner, call);
  list.grow(owner, metadata.gather(call, event));
}

/** A member of TOOL_CALL_ARGS that no log can have: the arguments replace those of the call. */
export const REPLACES = Symbol("replaces");

export function replacesArguments(event: JsonObject): boolean {
  return Object.hasOwn(event, REPLACES);
}

export function addArguments({ list, metadata }: Reduction, event: JsonObject): void {
  const existing = list.findCall(event["toolCallId"]);
  const called = existing === undefined ? undefined : functionOf(existing.call);
  const delta = textOf(event["delta"]);
  if (existing === undefined || called === undefined || delta === undefined) return;
  const before = called["arguments"];
  const isReplaced = replacesArguments(event);
  const after = isReplaced ? delta : `${String(before)}${delta}`;
  called["arguments"] = after;
  if (typeof before === "string" && !isReplaced) list.growText(existing.owner, delta.length);
  else list.grow(existing.owner, changedBytes("arguments", { before, after }));
  list.grow(existing.owner, metadata.gather(existing.call, event));
}

export function endCall({ list, metadata }: Reduction, event: JsonObject): void {
  const existing = list.findCall(event["toolCallId"]);
  if (existing !== undefined) list.grow(existing.owner, metadata.gather(existing.call, event));
}

/** Placed after the message with the call: models reject other messages between the two. */
export function addResult({ list, metadata }: Reduction, event: JsonObject): void {
  const { messageId: id, toolCallId, content, role } = event;
  if (typeof id !== "string") return;
  const message: Message = {
    id,
    toolCallId,
    role: typeof role === "string" && role !== "" ? role : "tool",
    content,
    ...attribution(event),
  };
  metadata.gather(message, event);
  const owner = list.findAssistantCall(toolCallId)?.owner;
  if (owner === undefined) list.push(message);
  else list.insertResult(owner, message);
}

/** REASONING_ENCRYPTED_VALUE: the provider wants the value back with the message or the call. */
export function setEncryptedValue({ list }: Reduction, event: JsonObject): void {
  const { subtype, entityId, encryptedValue } = event;
  const called = subtype === "tool-call" ? list.findAssistantCall(entityId) : undefined;
  const entry = subtype === "tool-call" ? called?.owner : list.find(entityId);
  const target = called?.call ?? entry?.message;
  if (entry === undefined || target === undefined || target["role"] === "activity") return;
  const before = target["encryptedValue"];
  list.grow(entry, changedBytes("encryptedValue", { before, after: encryptedValue }));
  target["encryptedValue"] = encryptedValue;
}

/** The parent, if it is an assistant's message; else a message made for the call. */
function ownerOf(
  { list }: Pick<Reduction, "list">,
  event: JsonObject,
  toolCallId: string,
): MessageEntry {
  const parentId = textOf(event["parentMessageId"]) ?? "";
  const parent = parentId === "" ? undefined : list.find(parentId);
  if (parent?.message["role"] === "assistant") return parent;
  const id = parent === undefined && parentId !== "" ? parentId : toolCallId;
  const isNew = list.find(id) === undefined;
  return list.push({ id, role: "assistant", toolCalls: [], ...(isNew ? attribution(event) : {}) });
}

function functionOf(call: Record<string, unknown>): Record<string, unknown> | undefined {
  const called = call["function"];
  return isObject(called) ? called : undefined;
}

/** Activities: messages whose content is an object, set by snapshots and changed by JSON Patches. */

/** Metadata stays through a snapshot; each snapshot sets the activity's subagent again. */
export function applyActivitySnapshot({ list, metadata }: Reduction, event: JsonObject): void {
  const id = textOf(event["messageId"]);
  if (id === undefined) return;
  const { activityType, content, replace } = event;
  const isReplacing = replace === undefined || replace === null || replace === true;
  const entry = list.find(id);
  const opened = { id, role: "activity", activityType, content, ...attribution(event) };
  if (entry === undefined) {
    const pushed = list.push(opened);
    list.grow(pushed, metadata.gather(pushed.message, event));
  } else if (entry.message["role"] === "activity") {
    if (isReplacing) replaceActivity({ list }, entry, event);
    list.grow(entry, metadata.gather(entry.message, event));
  } else if (isReplacing) {
    list.replace(entry, opened);
    list.grow(entry, metadata.gather(opened, event));
  }
}

/** A patch that fails, or grows the content too large, leaves it; metadata is applied anyway. */
export function applyActivityDelta(reduction: Reduction, event: JsonObject): void {
  const { list, metadata, patchedLimits } = reduction;
  const entry = list.find(event["messageId"]);
  if (entry === undefined || entry.message["role"] !== "activity") return;
  const { message } = entry;
  list.grow(entry, metadata.gather(message, event));
  const { content } = message;
  entry.content ??= new Patched(content ?? {}, patchedLimits);
  const existing = entry.content.bytes;
  const outcome = entry.content.apply(event["patch"] ?? []);
  const { bytes } = entry.content;
  // A failed patch may also have copied the content; the copy then replaces the original.
  if (outcome !== "applied" && !isObject(content) && !Array.isArray(content)) return;
  message["content"] = entry.content.value;
  if (bytes !== undefined) list.grow(entry, bytes - (existing ?? weightOf(content).bytes));
  if (content === undefined) list.grow(entry, entryBytes("content"));
  if (outcome !== "applied") return;
  const { activityType } = event;
  list.grow(
    entry,
    changedBytes("activityType", { before: message["activityType"], after: activityType }),
  );
  message["activityType"] = activityType;
}

/** Only changes are weighed: metadata that stays may have any length. */
function replaceActivity(
  { list }: Pick<Reduction, "list">,
  entry: MessageEntry,
  event: JsonObject,
): void {
  const { message: before } = entry;
  const after = replaced(before, event);
  const bytes = (["activityType", "content", "subagentRunId"] as const)
    .map((field) => changedBytes(field, { before: before[field], after: after[field] }))
    .reduce((sum, changed) => sum + changed, entry.bytes);
  list.replace(entry, after, bytes);
}

function replaced(message: Message, event: JsonObject): Message {
  const { subagentRunId: _, ...rest } = message;
  const { activityType, content } = event;
  return { ...rest, activityType, content, ...attribution(event) };
}

/**
 * A MESSAGES_SNAPSHOT replaces its messages in place and appends new ones. Others are removed,
 * except kinds that a backend often does not know: reasoning, unless the snapshot has reasoning,
 * and activities, unless it has activities or states the types that it owns.
 */
export function applySnapshot(list: MessageList, event: JsonObject): void {
  const { messages } = event;
  if (!Array.isArray(messages)) return;
  const incoming = messages.filter(isObject).map(adopted);
  const byId = new Map(incoming.map((message) => [message["id"], message]));
  const keeps = retainedFrom(incoming, ownedActivityTypes(event));
  const updated = new Set<unknown>();
  for (const entry of list.entries()) {
    const id = entry.message["id"];
    const update = byId.get(id);
    if (update !== undefined) {
      list.replace(entry, update);
      updated.add(id);
    } else if (!keeps(entry.message)) list.remove(entry);
  }
  for (const message of incoming) if (!updated.has(message["id"])) list.push(message);
}

function retainedFrom(
  incoming: readonly Message[],
  owned: readonly unknown[] | null | undefined,
): (message: Message) => boolean {
  const has = (role: string): boolean => incoming.some((message) => message["role"] === role);
  const hasReasoning = has("reasoning");
  const ownsActivities = owned === null || (owned === undefined && has("activity"));
  const types = new Set(owned);
  return ({ role, activityType }) =>
    (role === "reasoning" && !hasReasoning) ||
    (role === "activity" && !ownsActivities && !types.has(activityType));
}

/**
 * A convention of the client from 1.0.0 on: null owns all types, and a list owns its types.
 * Undefined states nothing, and any other value owns no type.
 */
function ownedActivityTypes({ metadata }: JsonObject): readonly unknown[] | null | undefined {
  if (!isObject(metadata) || !Object.hasOwn(metadata, "@ag-ui/client")) return undefined;
  const convention = metadata["@ag-ui/client"];
  if (!isObject(convention)) return [];
  if (!Object.hasOwn(convention, "authoritativeActivityTypes")) return undefined;
  const types = convention["authoritativeActivityTypes"];
  if (types === null) return null;
  const isList = Array.isArray(types) && types.every((type) => typeof type === "string");
  return isList ? types : [];
}
