/** The texts and tool calls of a run that are open, and the events that end them. */
import type { AgentEvent } from "../bridge.ts";

export class OpenParts {
  readonly #texts = new Set<string>();
  /** The calls without a result; true: their arguments have ended. */
  readonly #calls = new Map<string, boolean>();

  next({ type, messageId, toolCallId }: AgentEvent): void {
    if (typeof messageId === "string") {
      if (type === "TEXT_MESSAGE_START") this.#texts.add(messageId);
      if (type === "TEXT_MESSAGE_END") this.#texts.delete(messageId);
    }
    if (typeof toolCallId !== "string") return;
    if (type === "TOOL_CALL_START") this.#calls.set(toolCallId, false);
    if (type === "TOOL_CALL_END" && this.#calls.has(toolCallId)) this.#calls.set(toolCallId, true);
    if (type === "TOOL_CALL_RESULT") this.#calls.delete(toolCallId);
  }

  /** `status` and `message` become the result of a call that has none. */
  close(status: "stopped" | "error", message: string): readonly AgentEvent[] {
    const ends: AgentEvent[] = [];
    for (const messageId of this.#texts) ends.push({ type: "TEXT_MESSAGE_END", messageId });
    for (const [toolCallId, hasEnded] of this.#calls) {
      if (!hasEnded) ends.push({ type: "TOOL_CALL_END", toolCallId });
      const content = JSON.stringify({ status, message });
      const messageId = `${toolCallId}-result`;
      ends.push({ type: "TOOL_CALL_RESULT", toolCallId, messageId, role: "tool", content });
    }
    this.#texts.clear();
    this.#calls.clear();
    return ends;
  }
}
