/**
 * Tool calls, which belong to a message of the assistant, and their results, which are messages.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";
import type { Entry, Message } from "./message-list.ts";
import { attribution, type Reduction, textOf } from "./reduction.ts";
import { changedBytes } from "./weight.ts";

/** An existing call is not opened again: its name is corrected, its arguments stay. */
export function startCall({ list, metadata }: Reduction, event: JsonObject): void {
  const id = textOf(event, "toolCallId");
  if (id === undefined) return;
  const name = event["toolCallName"];
  const known = list.findCall(id);
  if (known !== undefined) {
    const called = functionOf(known.call);
    if (called !== undefined) {
      list.grow(known.owner, changedBytes("name", { before: called["name"], after: name }));
      called["name"] = name;
    }
    list.grow(known.owner, metadata.gather(known.call, event));
    return;
  }
  const call = { id, type: "function", function: { name, arguments: "" } };
  const owner = ownerOf({ list }, event, id);
  list.addCall(owner, call);
  list.grow(owner, metadata.gather(call, event));
}

export function addArguments({ list, metadata }: Reduction, event: JsonObject): void {
  const known = list.findCall(event["toolCallId"]);
  const called = known === undefined ? undefined : functionOf(known.call);
  const delta = textOf(event, "delta");
  if (known === undefined || called === undefined || delta === undefined) return;
  const before = called["arguments"];
  const after = `${String(before)}${delta}`;
  called["arguments"] = after;
  if (typeof before === "string") list.growText(known.owner, delta.length);
  else list.grow(known.owner, changedBytes("arguments", { before, after }));
  list.grow(known.owner, metadata.gather(known.call, event));
}

export function endCall({ list, metadata }: Reduction, event: JsonObject): void {
  const known = list.findCall(event["toolCallId"]);
  if (known !== undefined) list.grow(known.owner, metadata.gather(known.call, event));
}

/**
 * A result is placed after the message that called the tool, and not at its place in the stream:
 * models reject a conversation with other messages between the two.
 */
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

/**
 * REASONING_ENCRYPTED_VALUE: the value that the provider wants back with the message or the call.
 */
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
function ownerOf({ list }: Pick<Reduction, "list">, event: JsonObject, toolCallId: string): Entry {
  const parentId = textOf(event, "parentMessageId") ?? "";
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
