import type { JsonObject } from "../../agui/json.ts";
import type { MessageList } from "./message-list.ts";
import type { Metadata } from "./metadata.ts";
import type { PatchedLimits } from "./patched.ts";

/** The parts that events of messages, tool calls and activities change. */
export interface Reduction {
  readonly list: MessageList;
  readonly metadata: Metadata;
  readonly patchedLimits: PatchedLimits;
}

/** The field, if it is a text. */
export function textOf(event: JsonObject, field: string): string | undefined {
  const value = event[field];
  return typeof value === "string" ? value : undefined;
}

/** The subagent that an event names, for the message that the event opens. */
export function attribution({ subagentRunId }: JsonObject): { readonly subagentRunId?: unknown } {
  return subagentRunId === undefined || subagentRunId === null ? {} : { subagentRunId };
}
