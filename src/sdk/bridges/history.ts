/** The messages of a RunInput, as frameworks need them. */
import { isObject } from "../../agui/json.ts";
import type { AgentMessage, ResumeEntry, RunInput } from "../bridge.ts";

/** A result for each call that has none: models refuse a history with a call that is not answered. */
export const NO_RESULT = "There is no result: the run ended before the tool answered.";

export const DENIED = "The call was refused.";

export interface Call {
  readonly id: string;
  readonly name: string;
  /** JSON. */
  readonly args: string;
}

export type Part =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "media"; readonly mimeType: string; readonly data: string }
  | { readonly type: "media"; readonly mimeType: string; readonly url: string };

export function callsOf({ toolCalls }: AgentMessage): readonly Call[] {
  if (!Array.isArray(toolCalls)) return [];
  return toolCalls.filter(isObject).map(({ id, function: called }) => {
    const { name, arguments: args } = isObject(called) ? called : {};
    return { id: String(id), name: String(name), args: typeof args === "string" ? args : "" };
  });
}

/** The object of a call's arguments; empty if they are not whole, as after a kill. */
export function inputOf({ args }: Call): Readonly<Record<string, unknown>> {
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

/** What came after the agent's last answer: what a framework with a history of its own does not know. */
export function newMessages({ messages }: RunInput): readonly AgentMessage[] {
  return messages.slice(messages.findLastIndex(({ role }) => role === "assistant") + 1);
}

export function partsOf({ content }: AgentMessage): readonly Part[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.filter(isObject).flatMap(({ type, text, source }): readonly Part[] => {
    if (typeof text === "string") return [{ type: "text", text }];
    if (!isObject(source)) return [];
    const value = String(source["value"]);
    const { mimeType = type === "document" ? "application/pdf" : `${String(type)}/*` } = source;
    const media = { type: "media", mimeType: String(mimeType) } as const;
    if (source["type"] === "data") return [{ ...media, data: value }];
    return source["type"] === "url" ? [{ ...media, url: value }] : [];
  });
}

export function textOf(message: AgentMessage): string {
  return partsOf(message)
    .flatMap((part) => (part.type === "text" ? [part.text] : []))
    .join("\n");
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
