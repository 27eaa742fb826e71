/** Messages of AG-UI as LangChain takes them: plain objects, which it makes its messages of. */
import { isObject } from "@session-ledger/agui/json";
import { type MessagePart, partsOf } from "../../parts.ts";
import type { AgentMessage } from "../bridge.ts";
import {
  blocksOf,
  callsOf,
  inputOf,
  NO_RESULT,
  type OnOmitted,
  resultsOf,
  textOf,
} from "./history.ts";

export interface LangChainMessage {
  readonly role: "user" | "assistant" | "tool" | "remove";
  readonly content: string | readonly object[];
  readonly id?: string;
  readonly tool_call_id?: string;
  readonly tool_calls?: readonly object[];
}

/** Each call has its answer after it. */
export function langChainMessages(
  messages: readonly AgentMessage[],
  onOmitted: OnOmitted,
): readonly LangChainMessage[] {
  const results = resultsOf(messages);
  const called = new Set(messages.flatMap((message) => callsOf(message).map(({ id }) => id)));
  return messages.flatMap((message): readonly LangChainMessage[] => {
    const { id, role } = message;
    if (role === "user") return [{ role, id, content: contentOfUser(message, onOmitted) }];
    // A result of a call that only the graph has.
    if (role === "tool" && !called.has(String(message["toolCallId"])))
      return [toolMessage(message, onOmitted)];
    if (role !== "assistant") return [];
    const calls = callsOf(message);
    const answers = calls.map((call) => {
      const result = results.get(call.id);
      return result === undefined ? noResult(call.id) : toolMessage(result, onOmitted);
    });
    const content = textOf(message);
    if (content === "" && calls.length === 0) return [];
    const tool_calls = calls.map((call) => ({
      id: call.id,
      name: call.name,
      args: inputOf(call),
      type: "tool_call",
    }));
    return [{ role, id, content, tool_calls }, ...answers];
  });
}

/** Answers for the calls of the graph's last message, which a cancelled or killed run left without. */
export function noResults(
  stored: readonly Readonly<Record<string, unknown>>[],
): readonly LangChainMessage[] {
  const answered = new Set(stored.map(({ tool_call_id }) => tool_call_id));
  const calls = stored.flatMap(({ tool_calls }) => (Array.isArray(tool_calls) ? tool_calls : []));
  return calls
    .filter(isObject)
    .filter(({ id }) => !answered.has(id))
    .map(({ id }) => noResult(String(id)));
}

function noResult(callId: string): LangChainMessage {
  return { role: "tool", content: NO_RESULT, tool_call_id: callId };
}

function toolMessage(message: AgentMessage, onOmitted: OnOmitted): LangChainMessage {
  const { id, toolCallId } = message;
  const isList = Array.isArray(message["content"]);
  const content = isList ? blocksOf(message, blockOf, onOmitted) : textOf(message);
  return { role: "tool", id, content, tool_call_id: String(toolCallId) };
}

/** A sender and one text are one text, because not every model takes a list. */
function contentOfUser(message: AgentMessage, onOmitted: OnOmitted): string | readonly object[] {
  const [first, second, ...more] = partsOf(message["content"]);
  if (first?.type === "text" && more.length === 0) {
    if (second === undefined) return first.text;
    if (second.type === "text" && isObject(message["metadata"]))
      return `${first.text}\n\n${second.text}`;
  }
  return blocksOf(message, blockOf, onOmitted);
}

/** LangChain's blocks name the kind of a medium: image, audio, video or file. */
function blockOf(part: MessagePart): object | undefined {
  if (part.type === "text") return part;
  if (part.type === "unknown") return undefined;
  const { kind, name, source } = part;
  const { mimeType = kind === "document" ? "application/pdf" : undefined } = part;
  const from = "fileId" in source ? { fileId: source.fileId } : source;
  return {
    type: kind === "document" ? "file" : kind,
    ...(mimeType !== undefined && { mimeType }),
    ...from,
    ...(name !== undefined && { metadata: { filename: name } }),
  };
}
