/**
 * Records a streamed run of the OpenAI Agents SDK, and passes its events on:
 *
 *   const result = await run(agent, input, { stream: true });
 *   for await (const event of recordAgentStream(result, { address, sessionId, input })) …
 *
 * The stream has the whole run: texts by tokens, tools with results, handoffs, and approvals that are
 * asked for. A trace has no texts by tokens, and none at all where tracing is off.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";
import { contentOf } from "../../agui/event-maker.ts";
import { RecordedRun, type RecordOptions } from "./recorded-run.ts";

export interface RecordAgentStreamOptions extends RecordOptions {
  readonly sessionId: string;
  /** What the run was given, if it is new: its last questions become messages of the session. */
  readonly input?: unknown;
  /** Default: a new one. */
  readonly runId?: string;
}

/**
 * A cancel of the run ends the loop and the stream, and with it the model. Leaving the loop ends the run
 * as cancelled. The loop ends when the ledger has the run, or after 10 s.
 */
export async function* recordAgentStream<Event>(
  stream: AsyncIterable<Event>,
  { sessionId, input, runId = crypto.randomUUID(), ...options }: RecordAgentStreamOptions,
): AsyncGenerator<Event, void, undefined> {
  const run = new AgentRun({ sessionId, runId }, options);
  run.begin(questionsIn(input));
  let end = (): Promise<void> => run.finish({ outcome: { type: "cancelled" } });
  try {
    for await (const event of untilAborted(stream, run.signal)) {
      run.take(event);
      yield event;
    }
    end = () => run.end();
  } catch (error) {
    end = () => run.fail(error);
    throw error;
  } finally {
    await end();
  }
}

/** Also while the stream waits: an iterator could be asked to end only between two events. */
async function* untilAborted<Event>(
  stream: AsyncIterable<Event> & { toStream?(): ReadableStream<Event> },
  signal: AbortSignal,
): AsyncGenerator<Event, void, undefined> {
  const readable = stream.toStream?.() ?? ReadableStream.from(stream);
  const reader = readable.getReader();
  const leave = (): void => void reader.cancel(signal.reason).catch(() => undefined);
  if (signal.aborted) leave();
  signal.addEventListener("abort", leave, { once: true });
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    signal.removeEventListener("abort", leave);
    leave();
  }
}

class AgentRun extends RecordedRun {
  /** The message whose text comes by tokens. */
  #messageId: string | undefined;
  #lastMessageId: string | undefined;
  /** The text of the newest response has come by tokens. */
  #isStreamed = false;
  #step: string | undefined;
  readonly #interrupts: object[] = [];
  readonly #usage: Record<string, number> = {};

  take(event: unknown): void {
    if (!isObject(event)) return;
    const { type, name, data, item, agent } = event;
    if (type === "raw_model_stream_event" && isObject(data)) this.#raw(data);
    if (type === "run_item_stream_event" && isObject(item)) this.#item(String(name), item);
    if (type === "agent_updated_stream_event" && isObject(agent))
      this.#agent(contentOf(agent["name"]));
  }

  end(): Promise<void> {
    const interrupts = this.#interrupts;
    const hasUsage = Object.keys(this.#usage).length > 0;
    return this.finish({
      ...(interrupts.length > 0 && { outcome: { type: "interrupt", interrupts } }),
      ...(hasUsage && { usage: [this.#usage] }),
    });
  }

  #raw({ type, delta, response }: JsonObject): void {
    if (type === "response_started") this.#isStreamed = false;
    if (type === "output_text_delta" && typeof delta === "string") {
      this.#isStreamed = true;
      this.#lastMessageId = this.#messageId ??= crypto.randomUUID();
      this.write(this.constructs.text(this.#messageId, delta));
    }
    if (type !== "response_done") return;
    this.#endText();
    this.#count(isObject(response) ? response["usage"] : undefined);
  }

  #endText(): void {
    if (this.#messageId !== undefined) this.write(this.constructs.endText(this.#messageId));
    this.#messageId = undefined;
  }

  #item(name: string, { rawItem }: JsonObject): void {
    if (!isObject(rawItem)) return;
    const { id, callId, content, output } = rawItem;
    const ownId = typeof id === "string" ? id : crypto.randomUUID();
    const toolCallId = typeof callId === "string" ? callId : ownId;
    if (name === "message_output_created" && !this.#isStreamed) {
      this.#lastMessageId = ownId;
      this.write(this.constructs.text(ownId, textIn(content)));
      this.write(this.constructs.endText(ownId));
    }
    if (name === "reasoning_item_created") {
      this.write(this.constructs.reasoning(ownId, textIn(content)));
      this.write(this.constructs.endReasoning(ownId));
    }
    if (name === "tool_called" || name === "handoff_requested") this.#call(toolCallId, rawItem);
    if (name === "tool_output" || name === "handoff_occurred")
      this.write(this.constructs.result(toolCallId, { content: textIn(output) }));
    if (name === "tool_approval_requested")
      this.#interrupts.push({ id: toolCallId, reason: "tool_approval", toolCallId });
  }

  /** A hosted tool has its output in its call. */
  #call(toolCallId: string, { type, name, arguments: args, action, output }: JsonObject): void {
    const parent =
      this.#lastMessageId === undefined ? {} : { parentMessageId: this.#lastMessageId };
    this.write(this.constructs.call(toolCallId, { name: contentOf(name ?? type), ...parent }));
    this.write(this.constructs.args(toolCallId, contentOf(args ?? action ?? "")));
    this.write(this.constructs.endCall(toolCallId));
    if (typeof output === "string")
      this.write(this.constructs.result(toolCallId, { content: output }));
  }

  /** The agent that a handoff gives the conversation to is a step. */
  #agent(name: string): void {
    if (this.#step !== undefined) this.write(this.constructs.endStep(this.#step));
    this.#step = name;
    this.write(this.constructs.step(name));
  }

  #count(usage: unknown): void {
    if (!isObject(usage)) return;
    for (const name of ["inputTokens", "outputTokens", "totalTokens"]) {
      const count = usage[name];
      if (typeof count === "number") this.#usage[name] = (this.#usage[name] ?? 0) + count;
    }
  }
}

/** A text, a part with a text, or a list of them; other content as JSON. */
function textIn(content: unknown): string {
  if (Array.isArray(content)) return content.map(textIn).join("");
  if (!isObject(content)) return contentOf(content ?? "");
  const { text, refusal } = content;
  const said = text ?? refusal;
  return typeof said === "string" ? said : contentOf(content);
}

/** The questions at the end: an app may pass the history too. */
function questionsIn(input: unknown): readonly string[] {
  if (typeof input === "string") return [input];
  if (!Array.isArray(input)) return [];
  const first = input.findLastIndex((item) => !isObject(item) || item["role"] !== "user") + 1;
  return input.slice(first).map((item) => textIn(isObject(item) ? item["content"] : ""));
}
