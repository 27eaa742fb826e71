/** Messages of AG-UI as LangChain takes them: plain objects, which it makes its messages of. */
import { isObject } from "../../agui/json.ts";
import type { AgentMessage } from "../bridge.ts";
import { callsOf, inputOf, NO_RESULT, type Part, partsOf, resultsOf, textOf } from "./history.ts";

export interface LangChainMessage {
  readonly role: "user" | "assistant" | "tool";
  readonly content: string | readonly object[];
  readonly id?: string;
  readonly tool_call_id?: string;
  readonly tool_calls?: readonly object[];
}

/** Each call has its answer after it. */
export function langChainMessages(messages: readonly AgentMessage[]): readonly LangChainMessage[] {
  const results = resultsOf(messages);
  const called = new Set(messages.flatMap((message) => callsOf(message).map(({ id }) => id)));
  return messages.flatMap((message): readonly LangChainMessage[] => {
    const { id, role } = message;
    if (role === "user") return [{ role, id, content: contentOfUser(message) }];
    // A result of a call that only the graph has.
    if (role === "tool" && !called.has(String(message["toolCallId"])))
      return [toolMessage(message)];
    if (role !== "assistant") return [];
    const calls = callsOf(message);
    const answers = calls.map((call) => {
      const result = results.get(call.id);
      return result === undefined ? noResult(call.id) : toolMessage(result);
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
  known: readonly Readonly<Record<string, unknown>>[],
): readonly LangChainMessage[] {
  const answered = new Set(known.map(({ tool_call_id }) => tool_call_id));
  const calls = known.flatMap(({ tool_calls }) => (Array.isArray(tool_calls) ? tool_calls : []));
  return calls
    .filter(isObject)
    .filter(({ id }) => !answered.has(id))
    .map(({ id }) => noResult(String(id)));
}

function noResult(callId: string): LangChainMessage {
  return { role: "tool", content: NO_RESULT, tool_call_id: callId };
}

function toolMessage(message: AgentMessage): LangChainMessage {
  const { id, toolCallId } = message;
  return { role: "tool", id, content: textOf(message), tool_call_id: String(toolCallId) };
}

/** Texts are one text, because not every model takes a list. */
function contentOfUser(message: AgentMessage): string | readonly object[] {
  const parts = partsOf(message);
  const texts = parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
  return texts.length === parts.length ? texts.join("\n\n") : parts.map(blockOf);
}

/** LangChain's blocks name the kind of a medium: image, audio, video or file. */
function blockOf(part: Part): object {
  if (part.type === "text") return part;
  const [kind = ""] = part.mimeType.split("/");
  const type = ["image", "audio", "video"].includes(kind) ? kind : "file";
  const { type: _, ...source } = part;
  return { type, ...source };
}
