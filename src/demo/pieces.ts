/** The parts of an answer as AG-UI events, and the pauses between them. Pure. */
import type { AgentEvent, AgentEvents } from "@session-ledger/runner/internal/sdk/bridge";

/** A message of the agent, a word an event. */
export function* spoken(messageId: string, text: string): AgentEvents {
  yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
  for (const delta of wordsOf(text)) yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
  yield { type: "TEXT_MESSAGE_END", messageId };
}

export function* thought(messageId: string, text: string): AgentEvents {
  yield { type: "REASONING_START", messageId };
  yield { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" };
  for (const delta of wordsOf(text)) yield { type: "REASONING_MESSAGE_CONTENT", messageId, delta };
  yield { type: "REASONING_MESSAGE_END", messageId };
  yield { type: "REASONING_END", messageId };
}

export function* called({
  toolCallId,
  toolCallName,
  args,
}: Record<"toolCallId" | "toolCallName", string> & { readonly args: object }): AgentEvents {
  yield { type: "TOOL_CALL_START", toolCallId, toolCallName };
  for (const delta of wordsOf(JSON.stringify(args, null, 1)))
    yield { type: "TOOL_CALL_ARGS", toolCallId, delta };
  yield { type: "TOOL_CALL_END", toolCallId };
}

export function resultOf(toolCallId: string, content: string): AgentEvent {
  const messageId = `result-${toolCallId}`;
  return { type: "TOOL_CALL_RESULT", messageId, toolCallId, content, role: "tool" };
}

/** The end of a run that waits for a person; the id names the call that the person decides on. */
export function asking(
  toolCallId: string,
  message: string,
  more: Readonly<Record<string, unknown>> = {},
): AgentEvent {
  const interrupt = {
    id: `approval:${toolCallId}`,
    reason: "approval",
    message,
    toolCallId,
    responseSchema: {
      type: "object",
      properties: { approved: { type: "boolean" } },
      required: ["approved"],
    },
  };
  return { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [interrupt] }, ...more };
}

/** What a model used, for the end of a run. */
export function usageOf(model: string, inputTokens: number, outputTokens: number) {
  return { usage: [{ model, inputTokens, outputTokens }] };
}

/** With the space before each; scripts without spaces are cut after two characters. */
function wordsOf(text: string): readonly string[] {
  return text.match(/\s*(?:\p{Script=Han}{1,2}|[^\s\p{Script=Han}]+)|\s+$/gu) ?? [];
}

/** In words of an agent in that time. */
const PAUSES: Readonly<Record<string, number>> = {
  RUN_STARTED: 0,
  REASONING_START: 12,
  TEXT_MESSAGE_START: 8,
  TOOL_CALL_START: 6,
  TOOL_CALL_RESULT: 24,
  STEP_STARTED: 3,
};

/** Before the event with this position in its run; irregular, and the same each time. */
export function pauseMs({ type }: AgentEvent, position: number, paceMs: number): number {
  const jitter = 0.5 + ((position * 7_919) % 100) / 100;
  return (PAUSES[type] ?? 1) * jitter * paceMs;
}
