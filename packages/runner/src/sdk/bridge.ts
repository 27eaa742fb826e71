/**
 * A bridge brings an agent framework to the ledger. You implement two methods:
 *
 *   class MyBridge extends PlatformBridge {
 *     createAdapter(context) { return { run: (input, signal) => eventsOfMyAgent(input, signal) }; }
 *     capabilities() { return capabilitiesOf({ framework: "mine" }); }
 *   }
 *
 * `createRunner(new MyBridge(), …)` does the rest: turns, both streams, cancels, restarts.
 *
 * A bridge has one adapter for each session. The adapter is used again for the next run, and made
 * again after `markDirty`, never during a run. A session has one run at a time.
 */

import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { DeveloperEvents } from "./developer-events.ts";

/** One AG-UI event, as an object that JSON can print. */
export interface AgentEvent {
  readonly type: string;
  readonly [member: string]: unknown;
}

export type AgentEvents = Generator<AgentEvent, void, undefined>;

/** An answer to an interrupt of an earlier run. */
export interface ResumeEntry {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
}

/** A message of AG-UI: `id` and `role`, and what its role adds. */
export interface AgentMessage {
  readonly id: string;
  readonly role: string;
  readonly [member: string]: unknown;
}

/** AG-UI's RunAgentInput. The runner gives all members but `resume`, which is for answers. */
export interface RunInput {
  readonly threadId: string;
  readonly runId: string;
  /** The run that the caller continues; a claimed turn has none. */
  readonly parentRunId?: string;
  readonly state?: unknown;
  readonly messages: readonly AgentMessage[];
  readonly tools: readonly unknown[];
  readonly context: readonly unknown[];
  readonly forwardedProps?: unknown;
  readonly resume?: readonly ResumeEntry[];
}

/** An Observable of rxjs, as agents of `@ag-ui/client` return it. */
export interface ObservableEvents {
  subscribe(observer: {
    next(event: AgentEvent): void;
    error(error: unknown): void;
    complete(): void;
  }): { unsubscribe(): void };
}

/** The user whose request began a run, as the platform's proxy names them. */
export interface RunCaller {
  readonly userId?: string;
  readonly userName?: string;
  /** The user's token, for calls in their name. It is in no event. */
  readonly token?: string;
}

/** An agent that runs once for each call. Any `AbstractAgent` of `@ag-ui/client` is one. */
export interface Adapter {
  /**
   * The signal aborts when the run is cancelled, and when the process stops. RUN_STARTED,
   * RUN_FINISHED and RUN_ERROR may be left out: the runner adds them. `caller`: only for runs that
   * came over HTTP (`POST /`).
   */
  run(
    input: RunInput,
    signal: AbortSignal,
    caller?: RunCaller,
  ): AsyncIterable<AgentEvent> | ObservableEvents;
  /** Asks the current run to end, in addition to the signal. */
  interrupt?(): unknown;
}

/** The context for creating an adapter. */
export interface PlatformContext {
  readonly sessionId: string;
  /** True: the session had a run before, in this process or in an earlier one. */
  readonly isContinuation: boolean;
  readonly workspacePath?: string;
  readonly cwdPath?: string;
  readonly addDirs?: readonly string[];
  readonly model?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly systemPromptAppend?: string;
  readonly mcpServers?: Readonly<Record<string, unknown>>;
  readonly customTools?: readonly unknown[];
}

export interface FrameworkCapabilities {
  /** The name of the framework, for example `ai-sdk`. */
  readonly framework: string;
  /** Names of what the agent does, for example `interrupt`, `subagents`. */
  readonly agentFeatures: readonly string[];
  /** The agent works on files: the routes of repositories and workflows are served. */
  readonly fileSystem: boolean;
  /** The agent uses servers of the Model Context Protocol. */
  readonly mcp: boolean;
  /** The framework keeps its own history: a run gets only the new messages. */
  readonly sessionPersistence: boolean;
  readonly streaming: boolean;
  readonly thinking: boolean;
  readonly toolUse: boolean;
  /** The name of the tracing that the framework brings; null: none. */
  readonly tracing: string | null;
}

/** Capabilities with defaults: streaming and tools, nothing else. */
export function capabilitiesOf(
  given: Partial<FrameworkCapabilities> & Pick<FrameworkCapabilities, "framework">,
): FrameworkCapabilities {
  return {
    agentFeatures: [],
    fileSystem: false,
    mcp: false,
    sessionPersistence: false,
    streaming: true,
    thinking: false,
    toolUse: true,
    tracing: null,
    ...given,
  };
}

/** The session has a run in progress. */
export class RunInProgress extends Error {
  override readonly name = "RunInProgress";
  /** Of the answer to a request. */
  readonly status = 409;

  constructor(sessionId: string) {
    super(`session ${sessionId} has a run in progress`);
  }
}

/** A bridge returns what a runner cannot use. */
export class BridgeMistake extends TypeError {
  override readonly name = "BridgeMistake";
}

interface CachedAdapter {
  readonly adapter: Adapter;
  /** The state of `markDirty` when the adapter was made. */
  readonly generation: number;
}

interface Running {
  readonly runId: string;
  readonly ending: AbortController;
}

export abstract class PlatformBridge {
  readonly #adapters = new Map<string, CachedAdapter>();
  readonly #running = new Map<string, Running>();
  #generation = 0;
  /** Developer messages and CUSTOM events for the readers of the bridge's sessions. */
  readonly notes = new DeveloperEvents();

  /** Called before the first run of a session, and before the first one after `markDirty`. */
  abstract createAdapter(context: PlatformContext): Adapter | Promise<Adapter>;

  abstract capabilities(): FrameworkCapabilities;

  /**
   * The events of one run. Throws RunInProgress, and whatever the agent throws. Whatever ends the run
   * early aborts the signal of the adapter: `signal`, or `ending`, which `interrupt` aborts.
   */
  async *run(
    input: RunInput,
    context: PlatformContext,
    signal: AbortSignal = new AbortController().signal,
    caller?: RunCaller,
    ending = new AbortController(),
  ): AsyncGenerator<AgentEvent, void, undefined> {
    const { sessionId } = context;
    if (this.#running.has(sessionId)) throw new RunInProgress(sessionId);
    const running = { runId: input.runId, ending };
    this.#running.set(sessionId, running);
    const aborted = AbortSignal.any([signal, ending.signal]);
    let interrupt: (() => void) | undefined;
    try {
      const adapter = await this.#adapterOf(context);
      interrupt = () => void askToEnd(adapter);
      aborted.addEventListener("abort", interrupt, { once: true });
      yield* eventsOf(adapter.run(input, aborted, caller), aborted);
    } finally {
      if (interrupt !== undefined) aborted.removeEventListener("abort", interrupt);
      if (this.#running.get(sessionId) === running) this.#running.delete(sessionId);
    }
  }

  /**
   * Asks the run of a session to end, or the run with an id, or all runs. Returns the number of runs
   * that were asked. It ends a run as a cancel does: with the outcome `cancelled`.
   */
  async interrupt(threadId?: string, runId?: string): Promise<number> {
    const asked = [...this.#running].filter(
      ([id, running]) =>
        (threadId === undefined || id === threadId) &&
        (runId === undefined || running.runId === runId),
    );
    for (const [, { ending }] of asked) {
      ending.abort(new DOMException("the run was interrupted", "AbortError"));
    }
    return asked.length;
  }

  /** Every session gets a new adapter for its next run, because a setting has changed. */
  markDirty(): void {
    this.#generation += 1;
  }

  /** Whether a session has a run, or any session. */
  isRunning(threadId?: string): boolean {
    return threadId === undefined ? this.#running.size > 0 : this.#running.has(threadId);
  }

  /** The session is left, or its run hangs: the adapter is dropped, and the run counts as ended. */
  forget(sessionId: string): void {
    this.#adapters.delete(sessionId);
    this.#running.delete(sessionId);
    this.notes.forget(sessionId);
  }

  /** Ends all runs. Override it to close what your framework holds, and call `super.shutdown()`. */
  async shutdown(): Promise<void> {
    await this.interrupt();
    this.#adapters.clear();
  }

  /** The servers of the Model Context Protocol, their tools and their state. */
  getMcpStatus(): unknown {
    return { servers: [] };
  }

  /**
   * Called before a switch of the model (`POST /model`). Throw to refuse it; an adapter that is made
   * after it has the new model in its context.
   */
  switchModel?(model: string): unknown;

  /**
   * The handlers of the routes that need a file system. The result is the answer, as JSON. An error
   * with a `status` from 400 to 599 is answered with it. The adapters are made again after a change.
   */
  addRepo?(body: JsonObject, headers: Headers): unknown;
  removeRepo?(body: JsonObject, headers: Headers): unknown;
  changeWorkflow?(body: JsonObject, headers: Headers): unknown;
  getReposStatus?(): unknown;

  /** A text about the state of the agent; it goes into RUN_ERROR. Empty: nothing to say. */
  getErrorContext(): string {
    return "";
  }

  async #adapterOf(context: PlatformContext): Promise<Adapter> {
    const { sessionId } = context;
    const generation = this.#generation;
    const cached = this.#adapters.get(sessionId);
    if (cached?.generation === generation) return cached.adapter;
    const adapter = adapterOf(await this.createAdapter(context));
    this.#adapters.set(sessionId, { adapter, generation });
    return adapter;
  }
}

/** The signal of the run has aborted too, so an adapter that fails here is asked anyway. */
async function askToEnd(adapter: Adapter): Promise<void> {
  try {
    await adapter.interrupt?.();
  } catch {
    // The end of the run does not depend on it.
  }
}

/** A bridge without types may return anything. */
function adapterOf(made: Adapter | undefined | null): Adapter {
  if (typeof made?.run === "function") return made;
  const expected = "createAdapter must return an adapter, which is an object with a method run";
  throw new BridgeMistake(`${expected}; it returned ${kindOf(made)}`);
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (value instanceof Promise) return "a Promise";
  return Array.isArray(value) ? "an array" : `a value of type ${typeof value}`;
}

function isIterable(value: unknown): value is AsyncIterable<AgentEvent> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

function isObservable(value: unknown): value is ObservableEvents {
  return isObject(value) && typeof value["subscribe"] === "function";
}

/** An abort ends the subscription of an Observable, which is how its agents are stopped. */
async function* eventsOf(
  events: unknown,
  signal: AbortSignal,
): AsyncGenerator<AgentEvent, void, undefined> {
  if (isIterable(events)) {
    yield* events;
    return;
  }
  if (!isObservable(events)) {
    // A promise that rejects later, and that nobody awaits, would end the process.
    void Promise.resolve(events).catch(() => undefined);
    const expected = "run of an adapter must return an async iterable or an Observable of events";
    throw new BridgeMistake(`${expected}; it returned ${kindOf(events)}`);
  }
  signal.throwIfAborted(); // The listener below would miss it.
  let waiting: AgentEvent[] = [];
  let end: { readonly error?: unknown } | undefined;
  let wake: (() => void) | undefined;
  const finish = (how: { readonly error?: unknown }): void => {
    end ??= how;
    wake?.();
  };
  const stop = (): void => finish({ error: signal.reason });
  signal.addEventListener("abort", stop, { once: true });
  const subscription = events.subscribe({
    next: (event) => {
      waiting.push(event);
      wake?.();
    },
    error: (error) => finish({ error }),
    complete: () => finish({}),
  });
  try {
    for (;;) {
      // All at once: to shift a long list takes as long as to copy it.
      const given = waiting;
      waiting = [];
      yield* given;
      if (waiting.length > 0) continue;
      if (end !== undefined) break;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  } finally {
    signal.removeEventListener("abort", stop);
    subscription.unsubscribe();
  }
  if ("error" in end) throw end.error;
}
