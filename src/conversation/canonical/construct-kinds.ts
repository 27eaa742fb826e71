/** The constructs a client can have open, after translation: thinking has become reasoning. */
import type { ConstructKind } from "../../agui/catalogue.ts";
import type { JsonObject } from "../../agui/json.ts";

export type OpenKind = Exclude<ConstructKind, "run" | "thinking" | "thinking_message">;

export interface KindOfConstruct {
  readonly start: string;
  readonly end: string;
  readonly idField: "stepName" | "messageId" | "toolCallId" | "subagentRunId";
  /** The event that carries its text; undefined: the construct has no text. */
  readonly fragment: string | undefined;
  /** The fields of a START besides its id, for a START that was not logged. */
  readonly started: JsonObject;
}

export function isOpenKind(kind: ConstructKind | undefined): kind is OpenKind {
  return kind !== undefined && Object.hasOwn(KINDS, kind);
}

export const KINDS = {
  step: {
    start: "STEP_STARTED",
    end: "STEP_FINISHED",
    idField: "stepName",
    fragment: undefined,
    started: {},
  },
  text: {
    start: "TEXT_MESSAGE_START",
    end: "TEXT_MESSAGE_END",
    idField: "messageId",
    fragment: "TEXT_MESSAGE_CONTENT",
    started: { role: "assistant" },
  },
  tool_call: {
    start: "TOOL_CALL_START",
    end: "TOOL_CALL_END",
    idField: "toolCallId",
    fragment: "TOOL_CALL_ARGS",
    started: { toolCallName: "unknown" },
  },
  reasoning: {
    start: "REASONING_START",
    end: "REASONING_END",
    idField: "messageId",
    fragment: undefined,
    started: {},
  },
  reasoning_message: {
    start: "REASONING_MESSAGE_START",
    end: "REASONING_MESSAGE_END",
    idField: "messageId",
    fragment: "REASONING_MESSAGE_CONTENT",
    started: { role: "reasoning" },
  },
  subagent: {
    start: "SUBAGENT_STARTED",
    end: "SUBAGENT_FINISHED",
    idField: "subagentRunId",
    fragment: undefined,
    started: {},
  },
} as const satisfies Record<OpenKind, KindOfConstruct>;
