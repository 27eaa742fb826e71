/**
 * A compiled graph of `@langchain/langgraph` in this process.
 *
 *   new LangGraphBridge({ graph, Command })
 *
 * Nodes are steps, the values of the graph but its messages are the state, and `interrupt(value)` ends
 * the run with an interrupt; the run that brings the answer resumes the graph with its payload.
 *
 * The thread of the graph's checkpoints is the session. With a checkpoint the graph gets the messages
 * that it does not have yet, and without any continues where it was killed; without one (no
 * checkpointer, or one that was in the memory of a process that is gone) it gets the conversation.
 */
import { isObject, objectsIn } from "@session-ledger/agui/json";
import {
  type Adapter,
  type AgentEvent,
  capabilitiesOf,
  type FrameworkCapabilities,
  PlatformBridge,
  type PlatformContext,
  type RunInput,
} from "../bridge.ts";
import { newMessages, reportOmitted } from "./history.ts";
import { LangGraphRun } from "./langgraph-events.ts";
import { type LangChainMessage, langChainMessages, noResults } from "./langgraph-messages.ts";

/** The part of a compiled graph that the bridge uses. */
export interface LangGraph {
  stream(input: unknown, config: unknown): PromiseLike<AsyncIterable<unknown>>;
  getState(config: unknown): PromiseLike<GraphState>;
  readonly checkpointer?: unknown;
}

interface GraphState {
  readonly values: unknown;
  /** The nodes that run next; empty: the graph has ended, or not started. */
  readonly next: readonly string[];
  readonly tasks: readonly { readonly interrupts: readonly { readonly id?: string }[] }[];
}

export interface LangGraphOptions {
  readonly graph: LangGraph;
  /** The class of `@langchain/langgraph`: needed by graphs that interrupt. */
  readonly Command?: new (fields: {
    readonly resume: Readonly<Record<string, unknown>>;
    readonly update?: { readonly messages: readonly LangChainMessage[] };
  }) => object;
  /** The input of the graph for new messages; else `{ messages }`. */
  readonly input?: (messages: readonly LangChainMessage[], input: RunInput) => object;
  /** Added to the config of each run: `recursionLimit`, `context`, `callbacks`, … */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly capabilities?: Partial<FrameworkCapabilities>;
}

/** Each gives what no other one does: see `LangGraphRun`. */
const STREAM_MODES = ["messages", "tasks", "values", "custom"];

export class LangGraphBridge extends PlatformBridge {
  readonly #options: LangGraphOptions;

  constructor(options: LangGraphOptions) {
    super();
    this.#options = options;
  }

  override capabilities(): FrameworkCapabilities {
    return capabilitiesOf({
      framework: "langgraph",
      agentFeatures: ["interrupt", "steps", "state"],
      thinking: true,
      ...this.#options.capabilities,
    });
  }

  override createAdapter({ sessionId }: PlatformContext): Adapter {
    const { graph, config } = this.#options;
    const thread = { configurable: { thread_id: sessionId } };
    return {
      run: async function* (
        this: LangGraphBridge,
        input: RunInput,
        signal: AbortSignal,
      ): AsyncGenerator<AgentEvent, void, undefined> {
        const state = graph.checkpointer === undefined ? undefined : await graph.getState(thread);
        const chunks = await graph.stream(this.#inputOf(input, state), {
          ...config,
          ...thread,
          signal,
          streamMode: STREAM_MODES,
          subgraphs: true,
        });
        yield* new LangGraphRun(input).events(chunks);
      }.bind(this),
    };
  }

  #inputOf(input: RunInput, state: GraphState | undefined): unknown {
    const { input: inputOf = (messages) => ({ messages }) } = this.#options;
    const all = messagesOf(state);
    const left = leftOf(all, input);
    const stored = all.slice(0, all.length - left.length);
    const isPending = state !== undefined && state.next.length > 0;
    if (input.resume !== undefined && input.resume.length > 0) {
      return this.#resumeOf(input, state);
    }
    if (all.length === 0) return inputOf(this.#messages(input), input);
    const fresh = this.#messages(input, newTo(stored, input));
    // It was killed in the middle of this turn, and continues with the nodes that had not ended.
    if (fresh.length === 0 && isPending) return null;
    return inputOf([...left.flatMap(removal), ...noResults(stored), ...fresh], input);
  }

  #messages(input: RunInput, messages = input.messages): readonly LangChainMessage[] {
    return langChainMessages(messages, reportOmitted(this.notes, "LangGraph", input));
  }

  /** All answers at once; messages that came with them are added to those of the graph. */
  #resumeOf(input: RunInput, state: GraphState | undefined): object {
    const { Command } = this.#options;
    if (Command === undefined) throw new TypeError("Command is missing: a graph resumes with it");
    const waiting = new Set(
      state?.tasks.flatMap(({ interrupts }) => interrupts.map(({ id }) => id)),
    );
    const resume = (input.resume ?? []).map(({ interruptId, status, payload }) => {
      if (!waiting.has(interruptId)) {
        throw new Error(`the graph has no checkpoint with the interrupt ${interruptId}`);
      }
      return [interruptId, status === "resolved" ? payload : { cancelled: true }] as const;
    });
    const fresh = this.#messages(input, newTo(messagesOf(state), input));
    const fields = {
      resume: Object.fromEntries(resume),
      ...(fresh.length > 0 && { update: { messages: fresh } }),
    };
    return new Command(fields);
  }
}

function messagesOf(state: GraphState | undefined): readonly Readonly<Record<string, unknown>>[] {
  const messages = isObject(state?.values) ? state.values["messages"] : undefined;
  return objectsIn(messages);
}

/** The messages of the graph that a message of the input leaves, which regenerates or edits one. */
function leftOf(
  stored: readonly Readonly<Record<string, unknown>>[],
  input: RunInput,
): readonly Readonly<Record<string, unknown>>[] {
  for (const { metadata } of newMessages(input)) {
    const { regenerates, edits } = isObject(metadata) ? metadata : {};
    const index = stored.findIndex(({ id }) => id === (edits ?? regenerates));
    // A message that is answered again comes again, under its id.
    if (index !== -1) return stored.slice(index);
  }
  return [];
}

function removal({ id }: Readonly<Record<string, unknown>>): readonly LangChainMessage[] {
  return typeof id === "string" ? [{ role: "remove", id, content: "" }] : [];
}

/** The graph has the agent's messages: only those of users and frontend tools are new. */
function newTo(
  stored: readonly Readonly<Record<string, unknown>>[],
  { messages }: RunInput,
): readonly RunInput["messages"][number][] {
  const ids = new Set(stored.flatMap(({ id, tool_call_id: call }) => [id, call]));
  return messages.filter(
    ({ id, role, toolCallId }) =>
      (role === "user" && !ids.has(id)) || (role === "tool" && !ids.has(toolCallId)),
  );
}
