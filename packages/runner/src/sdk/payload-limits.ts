/**
 * Replaces an event without JSON, or an event that is too long for its reader:
 *
 *   of a tool call ─► TOOL_CALL_RESULT with a placeholder, and the run continues
 *   another one ────► RUN_ERROR, and the run is ended
 */
import { printJson } from "@session-ledger/agui/print";
import { textOf } from "../failure.ts";
import type { AgentEvent } from "./bridge.ts";

interface FittedPayload {
  readonly event: AgentEvent;
  readonly text: string;
  /** Why it was replaced; undefined: it was not. */
  readonly problem?: string;
  /** True: only values in it were replaced, which JSON cannot print. */
  readonly hasReplacedValues?: boolean;
}

/** `sizeOf`: the length of a text as its reader counts it; never more than three for each unit. */
export function fitPayload(
  event: AgentEvent,
  { max, sizeOf }: { readonly max: number; readonly sizeOf: (text: string) => number },
): FittedPayload {
  let problem: string;
  try {
    const { text, replaced: values } = printJson(event, max);
    if (text === undefined) throw new TypeError("it has no JSON");
    const hasReplacedValues = values.size > 0;
    const size = text.length * 3 <= max ? 0 : sizeOf(text);
    if (size <= max)
      return { event: hasReplacedValues ? JSON.parse(text) : event, text, hasReplacedValues };
    problem = `its size is ${size}, and ${max} is allowed`;
  } catch (error) {
    problem = textOf(error).slice(0, PROBLEM_CHARS_MAX);
  }
  const substitute = replaced(event, problem);
  const { type } = event;
  return {
    event: substitute,
    text: JSON.stringify(substitute),
    problem: `an event ${type} is replaced: ${problem}`,
  };
}

/** An error of the agent's own `toJSON` may be of any length. */
const PROBLEM_CHARS_MAX = 1_000;

function replaced({ type, toolCallId, messageId }: AgentEvent, problem: string): AgentEvent {
  if (typeof toolCallId !== "string") {
    return { type: "RUN_ERROR", message: `an event ${type} cannot be sent: ${problem}` };
  }
  return {
    type: "TOOL_CALL_RESULT",
    messageId: typeof messageId === "string" ? messageId : `${toolCallId}-result`,
    toolCallId,
    role: "tool",
    content: `[The result cannot be shown: ${problem}]`,
  };
}
