/** The messages of a RunInput as the AI SDK's model messages. */
import type { MessagePart } from "../../parts.ts";
import type { AgentMessage, RunInput } from "../bridge.ts";
import {
  blocksOf,
  callsOf,
  inputOf,
  isApproved,
  NO_RESULT,
  type OnOmitted,
  resultsOf,
  textOf,
} from "./history.ts";

type TextPart = { type: "text"; text: string };
type FileOf<Data> = { type: "file"; data: Data; mediaType: string; filename?: string };
/** Base64, a URL, or the id of a file under the name of its provider. */
type BareData = string | URL | Record<string, string>;
type TaggedData =
  | { type: "data"; data: string }
  | { type: "url"; url: URL }
  | { type: "reference"; reference: Record<string, string> };

/** The part of the AI SDK's `ModelMessage` that the bridge makes. */
export type AiSdkMessage =
  | {
      role: "user";
      content: (TextPart | FileOf<BareData>)[];
    }
  | {
      role: "assistant";
      content: (
        | TextPart
        | { type: "tool-call"; toolCallId: string; toolName: string; input: unknown }
        | { type: "tool-approval-request"; approvalId: string; toolCallId: string }
      )[];
    }
  | { role: "tool"; content: AiSdkAnswer[] };

interface AiSdkToolResult {
  type: "tool-result";
  toolCallId: string;
  toolName: string;
  output:
    | { type: "text"; value: string }
    | { type: "content"; value: (TextPart | FileOf<TaggedData>)[] };
}

type AiSdkAnswer =
  | AiSdkToolResult
  | { type: "tool-approval-response"; approvalId: string; approved: boolean };

/**
 * Answers follow their calls, as models need it. A call that waits for an approval gets the answer that
 * the run brings; any other call without a result gets one with that reason.
 */
export function aiSdkMessages(input: RunInput, onOmitted: OnOmitted): AiSdkMessage[] {
  const results = resultsOf(input.messages);
  return input.messages.flatMap((message): AiSdkMessage[] => {
    if (message.role === "user")
      return [{ role: "user", content: blocksOf(message, partOfUser, onOmitted) }];
    if (message.role !== "assistant") return [];
    return assistantMessages(message, { input, results, onOmitted });
  });
}

function partOfUser(part: MessagePart): TextPart | FileOf<BareData> | undefined {
  const made = partOfResult(part);
  if (made?.type !== "file") return made;
  const { data } = made;
  const bare = data.type === "data" ? data.data : data.type === "url" ? data.url : data.reference;
  return { ...made, data: bare };
}

function partOfResult(part: MessagePart): TextPart | FileOf<TaggedData> | undefined {
  if (part.type === "text") return part;
  const data = dataOf(part);
  if (part.type !== "media" || data === undefined) return undefined;
  const { kind, name } = part;
  const { mimeType = kind === "document" ? "application/pdf" : `${kind}/*` } = part;
  return {
    type: "file",
    data,
    mediaType: mimeType,
    ...(name !== undefined && { filename: name }),
  };
}

/** Undefined: a file of no named provider, or an address that is no URL. */
function dataOf(part: MessagePart): TaggedData | undefined {
  if (part.type !== "media") return undefined;
  const { source } = part;
  if ("data" in source) return { type: "data", data: source.data };
  if ("url" in source)
    return URL.canParse(source.url) ? { type: "url", url: new URL(source.url) } : undefined;
  const { fileId, provider } = source;
  if (provider === undefined) return undefined;
  return { type: "reference", reference: { [provider]: fileId } };
}

interface AiSdkConversation {
  readonly input: RunInput;
  readonly results: ReadonlyMap<string, AgentMessage>;
  readonly onOmitted: OnOmitted;
}

function assistantMessages(
  message: AgentMessage,
  { input: { resume = [] }, results, onOmitted }: AiSdkConversation,
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
      const output = outputOf(result, onOmitted);
      answers.push({ type: "tool-result", toolCallId, toolName, output });
    }
  }
  const made: AiSdkMessage[] = content.length === 0 ? [] : [{ role: "assistant", content }];
  return answers.length === 0 ? made : [...made, { role: "tool", content: answers }];
}

function outputOf(
  result: AgentMessage | undefined,
  onOmitted: OnOmitted,
): AiSdkToolResult["output"] {
  if (result === undefined) return { type: "text", value: NO_RESULT };
  if (!Array.isArray(result["content"])) return { type: "text", value: textOf(result) };
  return { type: "content", value: blocksOf(result, partOfResult, onOmitted) };
}
