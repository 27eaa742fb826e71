/** Tool calls, which hang on a message of the assistant, and their results, which are messages. */
import { isObject, type JsonObject } from "../json.ts";
import type { Entry, Message } from "./message-list.ts";
import { attribution, type Reduction, textOf } from "./reduction.ts";

/** A call that is there is not opened again: its name is corrected, its arguments stay. */
export function startCall({ list, metadata }: Reduction, event: JsonObject): void {
  const id = textOf(event, "toolCallId");
  if (id === undefined) return;
  const name = event["toolCallName"];
  const known = list.findCall(id)?.call;
  if (known !== undefined) {
    const called = functionOf(known);
    if (called !== undefined) called["name"] = name;
    metadata.gather(known, event);
    return;
  }
  const call = { id, type: "function", function: { name, arguments: "" } };
  list.addCall(ownerOf({ list }, event, id), call);
  metadata.gather(call, event);
}

export function addArguments({ list, metadata }: Reduction, event: JsonObject): void {
  const call = list.findCall(event["toolCallId"])?.call;
  const called = call === undefined ? undefined : functionOf(call);
  const delta = textOf(event, "delta");
  if (call === undefined || called === undefined || delta === undefined) return;
  called["arguments"] = `${String(called["arguments"])}${delta}`;
  metadata.gather(call, event);
}

export function endCall({ list, metadata }: Reduction, event: JsonObject): void {
  const call = list.findCall(event["toolCallId"])?.call;
  if (call !== undefined) metadata.gather(call, event);
}

/**
 * A result stands behind the message that called the tool, not where it comes in the stream: models
 * refuse a conversation in which anything is between the two.
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

/** REASONING_ENCRYPTED_VALUE: what the provider wants back with the message or the call. */
export function setEncryptedValue({ list }: Reduction, event: JsonObject): void {
  const { subtype, entityId, encryptedValue } = event;
  const target =
    subtype === "tool-call" ? list.findAssistantCall(entityId)?.call : list.find(entityId)?.message;
  if (target !== undefined && target["role"] !== "activity")
    target["encryptedValue"] = encryptedValue;
}

/** The parent when it is the assistant's; else a message made for the call. */
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
