/**
 * Callbacks of LangChain that record every run of a graph, of LangGraph or another chain:
 *
 *   const callbacks = [new LedgerCallbacks({ address: "127.0.0.1:9000" })];
 *   await graph.invoke(input, { callbacks, configurable: { thread_id: "t1" } });
 *
 * With `signal: callbacks[0].signalOf("t1")` in addition, a cancel of the run ends the graph.
 *
 * A run of the graph is a run of the session; what happens inside belongs to it, by the ids of parents.
 * Texts come by tokens where the graph streams, and else as a whole.
 */
import { isObject } from "@session-ledger/agui/json";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { textIn } from "../bridges/langgraph-events.ts";
import { LangGraphRecorder, type RecordOptions } from "./langgraph-recorder.ts";

export interface LedgerCallbacksOptions extends RecordOptions {
  /** Default: the `thread_id` of the graph's configuration, else a session for each run. */
  readonly sessionId?: string;
}

interface ChainStep {
  readonly runId: string;
  readonly parentRunId: string | undefined;
  readonly metadata: unknown;
  readonly name: string | undefined;
  readonly tags: readonly string[] | undefined;
}

/** Signals without a run; the oldest is forgotten. */
const SIGNALS_MAX = 10_000;

/** A callback handler of LangChain. */
export class LedgerCallbacks {
  readonly name = "session-ledger";
  /** The callbacks return at once; this keeps their order. */
  readonly awaitHandlers = true;
  readonly #options: LedgerCallbacksOptions;
  /** The recorded run of each run of LangChain that is in progress. */
  readonly #runs = new Map<string, LangGraphRecorder>();
  readonly #ends = new Set<Promise<void>>();
  /** For the next run of each session. */
  readonly #stopping = new BoundedMap<string, AbortController>(SIGNALS_MAX);

  constructor(options: LedgerCallbacksOptions) {
    this.#options = options;
  }

  handleChainStart(
    _chain: unknown,
    input: unknown,
    runId: string,
    parentRunId?: string,
    tags?: string[],
    metadata?: unknown,
    _type?: string,
    name?: string,
  ): void {
    this.#begin({ runId, parentRunId, metadata, name, tags }, input);
  }

  handleChainEnd(output: unknown, runId: string): void {
    this.#end(runId, (run, isRoot) => (isRoot ? run.end(output) : run.endNode(runId, output)));
  }

  handleChainError(error: unknown, runId: string): void {
    this.#end(runId, (run, isRoot) => (isRoot ? run.fail(error) : run.failNode(runId, error)));
  }

  handleChatModelStart(
    _model: unknown,
    messages: unknown[][],
    runId: string,
    parentRunId?: string,
    _extra?: unknown,
    tags?: string[],
    metadata?: unknown,
  ): void {
    this.#begin({ runId, parentRunId, metadata, name: undefined, tags }, { messages: messages[0] });
  }

  handleLLMNewToken(
    token: string,
    _place: unknown,
    runId: string,
    _parentRunId?: string,
    tags?: string[],
    fields?: unknown,
  ): void {
    if (isHidden(tags)) return;
    const chunk = isObject(fields) ? fields["chunk"] : undefined;
    const message = isObject(chunk) ? chunk["message"] : undefined;
    this.#runs.get(runId)?.token(runId, isObject(message) ? message : { content: token });
  }

  handleLLMEnd(output: unknown, runId: string, _parentRunId?: string, tags?: string[]): void {
    this.#end(runId, (run, isRoot) => {
      if (!isHidden(tags)) run.endModel(runId, output);
      if (isRoot) run.end();
    });
  }

  handleLLMError(error: unknown, runId: string): void {
    this.#end(runId, (run, isRoot) => {
      if (isRoot) run.fail(error);
    });
  }

  handleToolStart(
    tool: unknown,
    input: string,
    runId: string,
    parentRunId?: string,
    tags?: string[],
    metadata?: unknown,
    name?: string,
  ): void {
    this.#begin({ runId, parentRunId, metadata, name: undefined, tags }, undefined);
    const own = isObject(tool) && typeof tool["name"] === "string" ? tool["name"] : "tool";
    this.#runs.get(runId)?.startTool(runId, { name: name ?? own, input });
  }

  handleToolEnd(output: unknown, runId: string): void {
    this.#end(runId, (run, isRoot) => {
      run.endTool(runId, output);
      if (isRoot) run.end();
    });
  }

  handleToolError(error: unknown, runId: string): void {
    this.#end(runId, (run, isRoot) => {
      run.endTool(runId, String(error));
      if (isRoot) run.fail(error);
    });
  }

  handleCustomEvent(name: string, value: unknown, runId: string): void {
    this.#runs.get(runId)?.write([{ type: "CUSTOM", name, value: value ?? null }]);
  }

  /** Aborts when the session's next run is cancelled. Give it to that run as `signal`. */
  signalOf(sessionId: string): AbortSignal {
    const stopping = this.#stopping.get(sessionId) ?? new AbortController();
    this.#stopping.set(sessionId, stopping);
    return stopping.signal;
  }

  /** Resolves when the runs that have ended are stored, or wait for the service. */
  async flush(): Promise<void> {
    await Promise.all(this.#ends);
  }

  #begin({ runId, parentRunId, metadata, name, tags }: ChainStep, input: unknown): void {
    const parent = parentRunId === undefined ? undefined : this.#runs.get(parentRunId);
    const thread = isObject(metadata) ? metadata["thread_id"] : undefined;
    const sessionId = this.#options.sessionId ?? (typeof thread === "string" ? thread : runId);
    const stopping = parent === undefined ? this.#stopping.get(sessionId) : undefined;
    if (stopping !== undefined) this.#stopping.delete(sessionId);
    const run = parent ?? new LangGraphRecorder({ sessionId, runId }, this.#options, stopping);
    this.#runs.set(runId, run);
    if (parent === undefined) run.start(questionsIn(input));
    else if (isNode(metadata, name, tags)) run.startNode(runId, { name: name ?? "", input });
  }

  #end(runId: string, act: (run: LangGraphRecorder, isRoot: boolean) => void): void {
    const run = this.#runs.get(runId);
    this.#runs.delete(runId);
    if (run === undefined) return;
    const isRoot = run.runId === runId;
    act(run, isRoot);
    if (!isRoot) return;
    this.#ends.add(run.ended);
    void run.ended.then(() => this.#ends.delete(run.ended));
  }
}

/** LangGraph hides its own chains, and the models whose output is not for users. */
function isHidden(tags: readonly string[] = []): boolean {
  return tags.some((tag) => ["langsmith:hidden", "langsmith:nostream", "nostream"].includes(tag));
}

function isNode(metadata: unknown, name: string | undefined, tags?: readonly string[]): boolean {
  return isObject(metadata) && metadata["langgraph_node"] === name && !isHidden(tags);
}

/** The user messages at the end of an input: an app may pass the whole history each time. */
function questionsIn(input: unknown): readonly string[] {
  const messages = isObject(input) ? input["messages"] : input;
  if (typeof messages === "string") return [messages];
  if (!Array.isArray(messages)) return [];
  const texts = messages.map(questionIn);
  return texts.slice(texts.lastIndexOf(undefined) + 1).filter((text) => text !== undefined);
}

/** LangChain takes its own messages, `{ role, content }`, `[role, content]` and plain texts. */
function questionIn(message: unknown): string | undefined {
  if (typeof message === "string") return message;
  const [role, content] = Array.isArray(message)
    ? message
    : isObject(message)
      ? [message["type"] ?? message["role"], message["content"]]
      : [];
  return role === "human" || role === "user" ? textIn(content) : undefined;
}
