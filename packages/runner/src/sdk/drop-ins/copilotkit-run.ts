/** One run of a CopilotKit agent: its events go to the page and to the ledger. */
import { ReplaySubject } from "rxjs";
import type { LedgerClient } from "../../client.ts";
import { ledger } from "../../client.ts";
import { RpcFailure, textOf } from "../../failure.ts";
import { RunCancelled } from "../../writer/run-signal.ts";
import type { SessionWriter, WriterProblem } from "../../writer/types.ts";
import { createSessionWriter } from "../../writer/writer.ts";
import type { AgentEvent } from "../bridge.ts";
import { type StartedRun, startRun, type ThreadInput } from "./copilotkit-start.ts";
import type { LedgerConnection } from "./follow-run.ts";

/** The used members of CopilotKit's request to a runner. */
export interface CopilotKitRunRequest<Event> {
  readonly threadId: string;
  readonly agent: {
    runAgent(
      input: object,
      subscriber: { onEvent(runInput: { readonly event: Event }): void },
    ): Promise<unknown>;
    abortRun(): void;
    setMessages?(messages: readonly object[]): void;
  };
  readonly input: ThreadInput;
}

interface CopilotKitRunParts extends LedgerConnection {
  readonly client: LedgerClient;
  readonly lostAfterMs: number;
  readonly onProblem?: (threadId: string, problem: WriterProblem) => void;
  /** Called when the ledger has the end, before the page gets it: then the next run may begin. */
  readonly onEnded: () => void;
}

export class CopilotKitRun<Event extends AgentEvent> {
  readonly events = new ReplaySubject<Event>();
  /** Resolves when the ledger has the start of the run, or the start failed. */
  readonly started: Promise<unknown>;
  /** Resolves when the ledger has the end, and `events` is complete. */
  readonly ended: Promise<void>;
  readonly #request: CopilotKitRunRequest<Event>;
  readonly #parts: CopilotKitRunParts;
  #isStopping = false;

  constructor(request: CopilotKitRunRequest<Event>, parts: CopilotKitRunParts) {
    this.#request = request;
    this.#parts = parts;
    const beginning = startRun(request, parts);
    this.started = beginning.catch(() => undefined);
    this.ended = this.#perform(beginning);
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** False: it is another run, it is being stopped already, or the agent refuses. */
  stop(runId?: string): boolean {
    const { threadId: sessionId, input } = this.#request;
    if (runId !== undefined && runId !== input.runId) return false;
    if (!this.#abort()) return false;
    // The other readers get to know, and the service ends the run if the agent does not.
    const request = { sessionId, runId: input.runId, reason: "stopped in CopilotKit" };
    void this.#parts.client.call(ledger.cancelRun, request).catch(() => undefined);
    return true;
  }

  #abort(): boolean {
    if (this.#isStopping) return false;
    try {
      this.#request.agent.abortRun();
    } catch {
      return false;
    }
    this.#isStopping = true;
    return true;
  }

  async #perform(beginning: Promise<StartedRun>): Promise<void> {
    const end = await this.#end(beginning).catch((error: unknown) => {
      const code = error instanceof RpcFailure ? (error.reason ?? error.code) : "NOT_STARTED";
      return this.#eventOf({ type: "RUN_ERROR", message: textOf(error), code });
    });
    this.#parts.onEnded();
    this.events.next(end);
    this.events.complete();
  }

  async #end(beginning: Promise<StartedRun>): Promise<Event> {
    const started = await beginning;
    const writer = this.#writer(started);
    try {
      return await this.#runAgent(writer, started);
    } finally {
      await writer.close();
    }
  }

  #writer({ epoch }: StartedRun): SessionWriter {
    const { threadId: sessionId } = this.#request;
    const { address, token, tls, onProblem } = this.#parts;
    return createSessionWriter({
      address,
      sessionId,
      epoch,
      ...(token && { token }),
      ...(tls && { tls }),
      ...(onProblem && { onProblem: (problem) => onProblem(sessionId, problem) }),
    });
  }

  /** Resolves with the last event, which the writer has and the page has not. Throws when the run is lost. */
  async #runAgent(writer: SessionWriter, { start, messages }: StartedRun): Promise<Event> {
    const { agent, input } = this.#request;
    const open = new OpenParts();
    let end: Event | undefined;
    let isFirst = true;
    const take = (event: Event): void => {
      if (end !== undefined) return; // A client accepts nothing after the end.
      const isStart = event.type === "RUN_STARTED";
      // The claim has stored the start.
      if (isStart) this.events.next({ ...event, input: event["input"] ?? start["input"] });
      else if (isFirst) this.events.next(this.#eventOf(start));
      isFirst = false;
      if (isStart) return;
      if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") {
        end = event;
        return;
      }
      open.next(event);
      writer.event(event);
      this.events.next(event);
    };
    let failure: unknown;
    try {
      agent.setMessages?.(messages);
      const onEvent = ({ event }: { readonly event: Event }): void => take(event);
      const runInput = { ...input, messages };
      const run = this.#isStopping ? undefined : agent.runAgent(runInput, { onEvent });
      await Promise.race([run, this.#lost(writer)]);
    } catch (error) {
      if (error instanceof RunTakenOver) throw error.cause;
      failure = error;
    }
    const last = end ?? this.#closed(open, { failure, take });
    writer.event(this.#stored(last));
    return last;
  }

  /** Ends what the agent left open. */
  #closed(
    open: OpenParts,
    { failure, take }: { readonly failure: unknown; readonly take: (event: Event) => void },
  ): Event {
    const { threadId, input } = this.#request;
    const message = this.#isStopping
      ? "Run stopped by user"
      : failure === undefined
        ? "Run ended without emitting a terminal event"
        : textOf(failure);
    for (const event of open.close(this.#isStopping ? "stopped" : "error", message))
      take(this.#eventOf(event));
    return this.#eventOf(
      this.#isStopping
        ? { type: "RUN_FINISHED", threadId, runId: input.runId }
        : { type: "RUN_ERROR", message, code: "INCOMPLETE_STREAM" },
    );
  }

  /** The stored run has the ids of its start, which an agent may not know. */
  #stored(end: AgentEvent): AgentEvent {
    if (end.type !== "RUN_FINISHED") return end;
    const { threadId, input } = this.#request;
    const ids = { threadId, runId: input.runId };
    return this.#isStopping
      ? { ...end, ...ids, outcome: { type: "cancelled" } }
      : { ...end, ...ids };
  }

  /** Rejects when the session takes no more events of this run. A cancel stops the agent. */
  #lost(writer: SessionWriter): Promise<never> {
    const { agent, input } = this.#request;
    const signal = writer.runSignal(input.runId);
    return new Promise((_, reject) => {
      const act = (): void => {
        if (signal.reason instanceof RunCancelled) {
          this.#abort();
          return;
        }
        reject(new RunTakenOver("the run is lost", { cause: signal.reason }));
        agent.abortRun();
      };
      if (signal.aborted) act();
      signal.addEventListener("abort", act, { once: true });
    });
  }

  #eventOf(event: AgentEvent): Event {
    return JSON.parse(JSON.stringify(event));
  }
}

class RunTakenOver extends Error {}

/** The texts and tool calls of a run that are open, and the events that end them. */
class OpenParts {
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
