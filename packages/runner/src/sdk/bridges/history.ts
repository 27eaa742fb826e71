/** The messages of a RunInput, as frameworks need them. */
import { isObject } from "@session-ledger/agui/json";
import { describePart, type MessagePart, partsOf, textsOf } from "../../parts.ts";
import type { AgentMessage, ResumeEntry, RunInput } from "../bridge.ts";
import type { DeveloperEvents } from "../developer-events.ts";

/** A result for each call that has none: models refuse a history with a call that is not answered. */
export const NO_RESULT = "No result: the run ended before the tool answered.";

export const DENIED = "The call was refused.";

export interface AgentToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON. */
  readonly args: string;
}

export function callsOf({ toolCalls }: AgentMessage): readonly AgentToolCall[] {
  if (!Array.isArray(toolCalls)) return [];
  return toolCalls.filter(isObject).map(({ id, function: called }) => {
    const { name, arguments: args } = isObject(called) ? called : {};
    return { id: String(id), name: String(name), args: typeof args === "string" ? args : "" };
  });
}

/** The object of a call's arguments; empty if they are not whole, as after a kill. */
export function inputOf({ args }: AgentToolCall): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(args);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

/** The results by the id of their call. */
export function resultsOf(messages: readonly AgentMessage[]): ReadonlyMap<string, AgentMessage> {
  const results = messages.filter(({ role }) => role === "tool");
  return new Map(results.map((message) => [String(message["toolCallId"]), message]));
}

/** The messages after the agent's last answer, which a framework with its own history does not know. */
export function newMessages({ messages }: RunInput): readonly AgentMessage[] {
  return messages.slice(messages.findLastIndex(({ role }) => role === "assistant") + 1);
}

/** Called with each part that a framework cannot take, and the index of it in its message. */
export type OnOmitted = (message: AgentMessage, part: MessagePart, at: number) => void;

/** Reports the parts of new messages that the framework cannot take; older ones were reported. */
export function reportOmitted(
  notes: DeveloperEvents,
  framework: string,
  input: RunInput,
): OnOmitted {
  const fresh = new Set(newMessages(input));
  return (message, part, at) => {
    if (!fresh.has(message)) return;
    const what = `part ${at + 1} of message ${message.id}, ${describePart(part)},`;
    notes.problem(`${what} did not reach the agent: ${framework} cannot take it`, input.threadId);
  };
}

/** The framework's form of each part of a message, in their order. */
export function blocksOf<Block>(
  message: AgentMessage,
  blockOf: (part: MessagePart) => Block | undefined,
  onOmitted: OnOmitted,
): Block[] {
  return partsOf(message["content"]).flatMap((part, at) => {
    const block = blockOf(part);
    if (block === undefined) onOmitted(message, part, at);
    return block === undefined ? [] : [block];
  });
}

export function textOf({ content }: AgentMessage): string {
  return textsOf(content).join("");
}

/** An approval is the payload `{ "approved": true }`; any other answer is a refusal. */
export function isApproved({ status, payload }: ResumeEntry): boolean {
  return status === "resolved" && isObject(payload) && payload["approved"] === true;
}

/** The answer that an interrupt for an approval asks for. */
export const APPROVAL_SCHEMA = {
  type: "object",
  properties: { approved: { type: "boolean" } },
  required: ["approved"],
} as const;
