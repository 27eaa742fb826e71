/** Records one run of a graph from its callbacks. No method throws. */
import { isObject, type JsonObject, objectsIn } from "@session-ledger/agui/json";
import { contentOf, EventMaker } from "@session-ledger/agui/event-maker";
import { textOf } from "../../failure.ts";
import type { SessionWriter, WriterProblem } from "../../writer/types.ts";
import { createSessionWriter } from "../../writer/writer.ts";
import type { AgentEvent } from "../bridge.ts";
import { reasoningIn, textIn } from "../bridges/langgraph-events.ts";
import { type LedgerConnection, onCancel } from "./follow-run.ts";

export interface RecordOptions extends LedgerConnection {
  /** Called with the problems of writing. */
  readonly onProblem?: (sessionId: string, problem: WriterProblem) => void;
}

export class LangGraphRecorder {
  readonly runId: string;
  ended: Promise<void> = Promise.resolve();
  readonly #sessionId: string;
  readonly #writer: SessionWriter;
  readonly #stopping: AbortController;
  readonly #constructs = new EventMaker();
  /** The names of the open steps, by the run of their node. */
  readonly #steps = new Map<string, string>();
  /** The message that a run of a model makes. */
  readonly #made = new Map<string, string>();
  /** The id of each call by its message and index: only its first chunk has the id. */
  readonly #calls = new Map<string, string>();
  readonly #tools = new Map<string, { readonly name: string; readonly input: string }>();
  /** The ids of messages that are recorded or older, and the texts of those without an id. */
  readonly #seenIds = new Set<string>();
  readonly #results = new Set<string>();
  readonly #interrupts = new Map<string, object>();

  /** A cancel aborts `stopping`; then the run ends as cancelled. */
  constructor(
    { sessionId, runId }: { readonly sessionId: string; readonly runId: string },
    { address, token, tls, onProblem }: RecordOptions,
    stopping = new AbortController(),
  ) {
    this.runId = runId;
    this.#sessionId = sessionId;
    this.#stopping = stopping;
    this.#writer = createSessionWriter({
      address,
      sessionId,
      ...(token && { token }),
      ...(tls && { tls }),
      ...(onProblem && { onProblem: (problem) => onProblem(sessionId, problem) }),
    });
  }

  /** The questions are messages of the session, before the run. */
  start(questions: readonly string[]): void {
    const { runId } = this;
    for (const [at, payload] of questions.entries())
      this.#writer.message({ type: "user", payload, key: `${runId}:user:${at}`.slice(-128) });
    this.#writer.event({ type: "RUN_STARTED", threadId: this.#sessionId, runId });
    onCancel(this.#writer, runId, (reason) => this.#stopping.abort(reason));
  }

  write(events: Iterable<AgentEvent>): void {
    for (const event of events) this.#writer.event(event);
  }

  startNode(
    runId: string,
    { name, input }: { readonly name: string; readonly input: unknown },
  ): void {
    for (const { id } of messagesIn(input)) if (typeof id === "string") this.#seenIds.add(id);
    const events = [];
    const step = this.#constructs.step(name);
    for (let next = step.next(); ; next = step.next()) {
      if (next.done === true) {
        this.#steps.set(runId, next.value);
        break;
      }
      events.push(next.value);
    }
    this.write(events);
  }

  /** A node may make messages without a model. Other chains only pass messages on. */
  endNode(runId: string, output: unknown): void {
    if (!this.#steps.has(runId)) return;
    for (const [at, message] of messagesIn(output).entries())
      this.#message(message, `${runId}-${at}`);
    this.#endStep(runId);
  }

  failNode(runId: string, error: unknown): void {
    for (const interrupt of objectsIn(isObject(error) ? error["interrupts"] : undefined)) {
      const { id, value } = interrupt;
      const message = typeof value === "string" ? { message: value } : {};
      const shown = { id: String(id), reason: "interrupt", ...message, metadata: { value } };
      this.#interrupts.set(shown.id, shown);
    }
    this.#endStep(runId);
  }

  #endStep(runId: string): void {
    const step = this.#steps.get(runId);
    if (step !== undefined) this.write(this.#constructs.endStep(step));
  }

  token(runId: string, chunk: JsonObject): void {
    const made = this.#made.get(runId);
    const id = made ?? (typeof chunk["id"] === "string" ? chunk["id"] : `run-${runId}`);
    this.#made.set(runId, id);
    this.#text(id, chunk);
    for (const { id: ownId, name, args, index } of objectsIn(chunk["tool_call_chunks"])) {
      const key = `${id} ${String(index)}`;
      if (typeof ownId === "string") this.#calls.set(key, ownId);
      const callId = this.#calls.get(key);
      if (callId === undefined) continue;
      this.write(this.#constructs.call(callId, { name: contentOf(name), parentMessageId: id }));
      if (typeof args === "string") this.write(this.#constructs.args(callId, args));
    }
  }

  endModel(runId: string, output: unknown): void {
    const message = messageOf(output);
    if (message === undefined) return;
    const made = this.#made.get(runId);
    const ownId = typeof message["id"] === "string" ? message["id"] : `run-${runId}`;
    if (made === undefined) this.#text(ownId, message);
    this.#seenIds.add(ownId);
    this.#callsOf(made ?? ownId, message);
    this.#endMessage(made ?? ownId);
  }

  #message(message: JsonObject, ownId: string): void {
    const { type, id, tool_call_id: callId, content } = message;
    if (type === "tool" && typeof callId === "string") this.#result(callId, textIn(content));
    if (type !== "ai") return;
    const text = textIn(content);
    const key = typeof id === "string" ? id : `text ${text}`;
    if (this.#seenIds.has(key) || this.#seenIds.has(`text ${text}`)) return;
    this.#seenIds.add(key);
    const messageId = typeof id === "string" ? id : ownId;
    this.#text(messageId, message);
    this.#callsOf(messageId, message);
    this.#endMessage(messageId);
  }

  #text(id: string, message: JsonObject): void {
    this.write(this.#constructs.reasoning(`${id}-reasoning`, reasoningIn(message)));
    const text = textIn(message["content"]);
    if (text !== "") this.write(this.#constructs.endReasoning(`${id}-reasoning`));
    this.write(this.#constructs.text(id, text));
  }

  #callsOf(parentMessageId: string, message: JsonObject): void {
    for (const { id, name, args } of objectsIn(message["tool_calls"])) {
      if (typeof id !== "string") continue;
      if (!this.#constructs.hasCall(id)) {
        this.write(this.#constructs.call(id, { name: contentOf(name), parentMessageId }));
        this.write(this.#constructs.args(id, contentOf(args)));
      }
      this.write(this.#constructs.endCall(id));
    }
  }

  #endMessage(id: string): void {
    this.write(this.#constructs.endReasoning(`${id}-reasoning`));
    this.write(this.#constructs.endText(id));
  }

  startTool(runId: string, tool: { readonly name: string; readonly input: string }): void {
    this.#tools.set(runId, tool);
  }

  /** A tool without a model's call becomes a separate call. */
  endTool(runId: string, output: unknown): void {
    const tool = this.#tools.get(runId);
    this.#tools.delete(runId);
    const callId = isObject(output) ? output["tool_call_id"] : undefined;
    const content = isObject(output) && "content" in output ? textIn(output["content"]) : undefined;
    if (typeof callId === "string") return this.#result(callId, content ?? "");
    if (tool === undefined) return;
    this.write(this.#constructs.call(runId, { name: tool.name }));
    this.write(this.#constructs.args(runId, tool.input));
    this.#result(runId, content ?? contentOf(output));
  }

  #result(callId: string, content: string): void {
    if (this.#results.has(callId)) return;
    this.#results.add(callId);
    this.write(this.#constructs.result(callId, { content }));
  }

  /** Ends with the graph's last state, without its messages. */
  end(output?: unknown): void {
    const { messages: _, __interrupt__: __, ...snapshot } = isState(output) ? output : {};
    if (Object.keys(snapshot).length > 0) this.write([{ type: "STATE_SNAPSHOT", snapshot }]);
    const interrupts = [...this.#interrupts.values()];
    const outcome = { outcome: { type: "interrupt", interrupts } };
    this.ended = this.#finish(interrupts.length > 0 ? outcome : {});
  }

  fail(error: unknown): void {
    // The framework of a cancelled run fails with the abort.
    this.ended = this.#stopping.signal.aborted
      ? this.#finish({})
      : this.#close({ type: "RUN_ERROR", message: textOf(error) });
  }

  #finish(more: object): Promise<void> {
    const { runId } = this;
    const outcome = this.#stopping.signal.aborted ? { outcome: { type: "cancelled" } } : {};
    const end = { type: "RUN_FINISHED", threadId: this.#sessionId, runId };
    return this.#close({ ...end, ...more, ...outcome });
  }

  /** Resolves when the run is stored, or cannot be stored for now. */
  async #close(end: AgentEvent): Promise<void> {
    this.write(this.#constructs.endAll());
    this.#writer.event(end);
    await this.#writer.close();
  }
}

/** The messages of an input, an output, or an update of a node. */
function messagesIn(value: unknown): readonly JsonObject[] {
  if (Array.isArray(value)) return value.flatMap(messagesIn);
  if (!isObject(value)) return [];
  const { type, messages, update } = value;
  if (typeof type === "string" && "content" in value) return [value];
  return messages === undefined ? messagesIn(update ?? []) : messagesIn(messages);
}

/** The message that a run of a model ends with. */
function messageOf(output: unknown): JsonObject | undefined {
  const generations = isObject(output) ? output["generations"] : undefined;
  const [first] = Array.isArray(generations) ? generations : [];
  const [generation]: unknown[] = Array.isArray(first) ? first : [];
  if (!isObject(generation)) return undefined;
  const { message, text } = generation;
  return isObject(message) ? message : { content: text };
}

/** The state of a graph; a chain may end with a message, which is recorded. */
function isState(output: unknown): output is JsonObject {
  return isObject(output) && messagesIn(output)[0] !== output && !("lc_kwargs" in output);
}
