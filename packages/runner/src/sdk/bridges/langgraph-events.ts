/**
 * A graph's stream as AG-UI events, by its modes: `messages` (texts, reasoning, calls, results),
 * `tasks` (nodes and their interrupts), `values` (the state), `custom` (writes of nodes).
 */
import { isObject, type JsonObject, objectsIn } from "@session-ledger/agui/json";
import { printJson } from "@session-ledger/agui/print";
import type { AgentEvent, AgentEvents, RunInput } from "../bridge.ts";
import { EventMaker, contentOf } from "@session-ledger/agui/event-maker";

export class LangGraphRun {
  readonly #input: RunInput;
  readonly #constructs = new EventMaker();
  /** The names of the open steps, by the id of the task. */
  readonly #steps = new Map<string, string>();
  /** The messages of each task that runs: a message ends with its task, because no other event marks its end. */
  readonly #messages = new Map<string, Set<string>>();
  /** The id of each call, by its message and index: only its first chunk has the id. */
  readonly #calls = new Map<string, string>();
  readonly #interrupts = new Map<string, object>();
  /** Counts of tokens by model. */
  readonly #usage = new Map<string, Record<string, number>>();
  #state = "";

  constructor(input: RunInput) {
    this.#input = input;
  }

  async *events(chunks: AsyncIterable<unknown>): AsyncGenerator<AgentEvent, void, undefined> {
    for await (const chunk of chunks) {
      if (!Array.isArray(chunk)) continue;
      const [namespace, mode, value]: unknown[] = chunk;
      const isRoot = Array.isArray(namespace) && namespace.length === 0;
      if (mode === "messages" && Array.isArray(value)) {
        const [message, metadata]: unknown[] = value;
        if (isObject(message)) yield* this.#message(message, isObject(metadata) ? metadata : {});
      }
      if (mode === "tasks" && isObject(value)) yield* this.#task(value);
      if (mode === "values" && isRoot && isObject(value)) yield* this.#values(value);
      if (mode === "custom") yield { type: "CUSTOM", name: "langgraph", value: value ?? null };
    }
    yield* this.#constructs.endAll();
    yield this.#finished();
  }

  *#message(message: JsonObject, metadata: JsonObject): AgentEvents {
    const id = String(message["id"]);
    const content = message["content"];
    if (message["type"] === "tool") {
      const callId = String(message["tool_call_id"]);
      yield* this.#constructs.result(callId, { messageId: id, content: textIn(content) });
      return;
    }
    if (message["type"] !== "ai") return;
    this.#count(message);
    const task = String(metadata["langgraph_checkpoint_ns"]);
    const own = this.#messages.get(task) ?? new Set();
    this.#messages.set(task, own.add(id));
    yield* this.#constructs.reasoning(`${id}-reasoning`, reasoningIn(message));
    const text = textIn(content);
    if (text !== "") yield* this.#constructs.endReasoning(`${id}-reasoning`);
    yield* this.#constructs.text(id, text);
    yield* this.#callsIn(id, message);
  }

  *#callsIn(messageId: string, message: JsonObject): AgentEvents {
    const chunks = objectsIn(message["tool_call_chunks"]);
    for (const { id, name, args, index } of chunks) {
      const key = `${messageId} ${String(index)}`;
      if (typeof id === "string") this.#calls.set(key, id);
      const callId = this.#calls.get(key);
      if (callId === undefined) continue;
      yield* this.#constructs.call(callId, { name: contentOf(name), parentMessageId: messageId });
      if (typeof args === "string") yield* this.#constructs.args(callId, args);
    }
    if (chunks.length > 0) return;
    // A model that does not stream its calls.
    for (const { id, name, args } of objectsIn(message["tool_calls"])) {
      if (typeof id !== "string" || this.#constructs.hasCall(id)) continue;
      yield* this.#constructs.call(id, { name: contentOf(name), parentMessageId: messageId });
      yield* this.#constructs.args(id, contentOf(args));
    }
  }

  /** A task comes twice: when it begins, and with its result or its interrupts. */
  *#task(task: JsonObject): AgentEvents {
    const id = String(task["id"]);
    if ("input" in task) {
      this.#steps.set(id, yield* this.#constructs.step(String(task["name"])));
      return;
    }
    for (const [namespace, messages] of this.#messages) {
      if (namespace.includes(id)) yield* this.#endMessages(messages);
    }
    for (const interrupt of objectsIn(task["interrupts"])) this.#interrupt(interrupt);
    const step = this.#steps.get(id);
    if (step !== undefined) yield* this.#constructs.endStep(step);
  }

  *#endMessages(messages: ReadonlySet<string>): AgentEvents {
    for (const id of messages) {
      yield* this.#constructs.endReasoning(`${id}-reasoning`);
      yield* this.#constructs.endText(id);
    }
    for (const [key, callId] of this.#calls) {
      const [messageId = ""] = key.split(" ");
      if (messages.has(messageId)) yield* this.#constructs.endCall(callId);
    }
  }

  #interrupt({ id, value }: JsonObject): void {
    const { reason, message }: JsonObject = isObject(value) ? value : { message: value };
    this.#interrupts.set(String(id), {
      id: String(id),
      reason: typeof reason === "string" ? reason : "interrupt",
      ...(typeof message === "string" && { message }),
      metadata: { value: value ?? null },
    });
  }

  /** The graph's messages are the conversation, which the other events already have. */
  *#values(values: JsonObject): AgentEvents {
    const { messages: _, ...snapshot } = values;
    const { text = "{}" } = printJson(snapshot);
    if ("__interrupt__" in snapshot || text === "{}" || text === this.#state) return;
    this.#state = text;
    yield { type: "STATE_SNAPSHOT", snapshot };
  }

  /** Chunks count their own part, so that the counts of a message are the sum of its chunks. */
  #count({ usage_metadata: usage, response_metadata: response }: JsonObject): void {
    if (!isObject(usage)) return;
    const { input_token_details: input, output_token_details: output } = usage;
    const model = isObject(response) ? response["model_name"] : undefined;
    const counts = Object.entries({
      inputTokens: usage["input_tokens"],
      outputTokens: usage["output_tokens"],
      totalTokens: usage["total_tokens"],
      cachedInputTokens: isObject(input) ? input["cache_read"] : undefined,
      cacheWriteInputTokens: isObject(input) ? input["cache_creation"] : undefined,
      reasoningTokens: isObject(output) ? output["reasoning"] : undefined,
    });
    const key = typeof model === "string" ? model : "";
    const sum = this.#usage.get(key) ?? {};
    for (const [name, count] of counts) {
      if (typeof count === "number") sum[name] = (sum[name] ?? 0) + count;
    }
    this.#usage.set(key, sum);
  }

  #finished(): AgentEvent {
    const { threadId, runId } = this.#input;
    const interrupts = [...this.#interrupts.values()];
    const usage = [...this.#usage].map(([model, counts]) => ({
      ...(model !== "" && { model }),
      ...counts,
    }));
    return {
      type: "RUN_FINISHED",
      threadId,
      runId,
      ...(interrupts.length > 0 && { outcome: { type: "interrupt", interrupts } }),
      ...(usage.length > 0 && { usage }),
    };
  }
}

/** The content of a message is a text, or a list of blocks. */
export function textIn(content: unknown): string {
  if (typeof content === "string") return content;
  return objectsIn(content)
    .flatMap(({ type, text }) => (type === "text" && typeof text === "string" ? [text] : []))
    .join("");
}

/** Models send it in separate blocks, or outside the content. */
export function reasoningIn({ content, additional_kwargs: extra }: JsonObject): string {
  const extraReasoning = isObject(extra) ? extra["reasoning_content"] : undefined;
  const blocks = objectsIn(content).map(({ reasoning, thinking }) => reasoning ?? thinking);
  return [...blocks, extraReasoning].filter((text) => typeof text === "string").join("");
}
