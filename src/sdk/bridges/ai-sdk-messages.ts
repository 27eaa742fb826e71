/** The messages of a RunInput as the AI SDK's model messages. */
import type { AgentMessage, RunInput } from "../bridge.ts";
import { callsOf, inputOf, isApproved, NO_RESULT, partsOf, resultsOf, textOf } from "./history.ts";

type Text = { type: "text"; text: string };

/** The part of the AI SDK's `ModelMessage` that the bridge makes. */
export type AiSdkMessage =
  | {
      role: "user";
      content: (Text | { type: "file"; data: string | URL; mediaType: string })[];
    }
  | {
      role: "assistant";
      content: (
        | Text
        | { type: "tool-call"; toolCallId: string; toolName: string; input: unknown }
        | { type: "tool-approval-request"; approvalId: string; toolCallId: string }
      )[];
    }
  | { role: "tool"; content: AiSdkAnswer[] };

type AiSdkAnswer =
  | {
      type: "tool-result";
      toolCallId: string;
      toolName: string;
      output: { type: "text"; value: string };
    }
  | { type: "tool-approval-response"; approvalId: string; approved: boolean };

/**
 * Answers follow their calls, as models need it. A call that waits for an approval gets the answer that
 * the run brings; any other call without a result gets one that says so.
 */
export function aiSdkMessages(input: RunInput): AiSdkMessage[] {
  const results = resultsOf(input.messages);
  return input.messages.flatMap((message): AiSdkMessage[] => {
    if (message.role === "user") return [{ role: "user", content: contentOfUser(message) }];
    return message.role === "assistant" ? assistantMessages(message, input, results) : [];
  });
}

function contentOfUser(message: AgentMessage): (AiSdkMessage & { role: "user" })["content"] {
  return partsOf(message).map((part) => {
    if (part.type === "text") return part;
    const data = "data" in part ? part.data : new URL(part.url);
    return { type: "file", data, mediaType: part.mimeType };
  });
}

function assistantMessages(
  message: AgentMessage,
  { resume = [] }: RunInput,
  results: ReadonlyMap<string, AgentMessage>,
): AiSdkMessage[] {
  const text = textOf(message);
  const content: (AiSdkMessage & { role: "assistant" })["content"] = [];
  const answers: AiSdkAnswer[] = [];
  if (text !== "") content.push({ type: "text", text });
  for (const call of callsOf(message)) {
    const { id: toolCallId, name: toolName } = call;
    content.push({ type: "tool-call", toolCallId, toolName, input: inputOf(call) });
    const result = results.get(toolCallId);
    const answer = resume.find(({ interruptId }) => interruptId === toolCallId);
    if (result === undefined && answer !== undefined) {
      const approvalId = toolCallId;
      content.push({ type: "tool-approval-request", approvalId, toolCallId });
      answers.push({ type: "tool-approval-response", approvalId, approved: isApproved(answer) });
    } else {
      const value = result === undefined ? NO_RESULT : textOf(result);
      answers.push({
        type: "tool-result",
        toolCallId,
        toolName,
        output: { type: "text", value },
      });
    }
  }
  const made: AiSdkMessage[] = content.length === 0 ? [] : [{ role: "assistant", content }];
  return answers.length === 0 ? made : [...made, { role: "tool", content: answers }];
}
