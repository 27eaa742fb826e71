/**
 * Runs an agent of the OpenAI Agents SDK as a run of a session, and passes its stream on. Texts come by
 * tokens, tools with their results. A cancel of the run ends the stream and the model.
 */
import { type Agent, run, type RunStreamEvent } from "@openai/agents-core";
import { createSessionWriter } from "@session-ledger/runner";

interface Ledger {
  readonly address: string;
  readonly sessionId: string;
}

export async function* recordedRun(agent: Agent, input: string, { address, sessionId }: Ledger) {
  const writer = createSessionWriter({ address, sessionId, onProblem: console.error });
  const runId = crypto.randomUUID();
  const finished = { type: "RUN_FINISHED", threadId: sessionId, runId };
  // Also if the app leaves the loop.
  let end: object = { ...finished, outcome: { type: "cancelled" } };
  let response = 0;
  writer.message({ type: "user", payload: input });
  writer.event({ type: "RUN_STARTED", threadId: sessionId, runId });
  try {
    const result = await run(agent, input, { stream: true, signal: writer.runSignal(runId) });
    for await (const event of result) {
      if (event.type === "raw_model_stream_event" && event.data.type === "response_started")
        response += 1;
      const made = eventOf(event, `${runId}-${response}`);
      if (made !== undefined) writer.event(made);
      yield event;
    }
    if (!result.cancelled) end = finished;
  } catch (error) {
    end = { type: "RUN_ERROR", message: String(error) };
    throw error;
  } finally {
    writer.event(end);
    await writer.close();
  }
}

/** The AG-UI event of a token, a call or a result; `messageId` is the text of the newest response. */
function eventOf(event: RunStreamEvent, messageId: string): object | undefined {
  if (event.type === "raw_model_stream_event") {
    if (event.data.type !== "output_text_delta") return undefined;
    const { delta } = event.data;
    return { type: "TEXT_MESSAGE_CHUNK", messageId, role: "assistant", delta };
  }
  if (event.type !== "run_item_stream_event") return undefined;
  const { rawItem, type } = event.item;
  if (rawItem?.type === "function_call" && type === "tool_call_item") {
    const { callId: toolCallId, name: toolCallName, arguments: delta } = rawItem;
    return {
      type: "TOOL_CALL_CHUNK",
      toolCallId,
      toolCallName,
      parentMessageId: messageId,
      delta,
    };
  }
  if (type !== "tool_call_output_item" || rawItem?.type !== "function_call_result")
    return undefined;
  const { callId: toolCallId } = rawItem;
  const content = String(event.item.output);
  return { type: "TOOL_CALL_RESULT", messageId: `${toolCallId}-result`, toolCallId, content };
}
