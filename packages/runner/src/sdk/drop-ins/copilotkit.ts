/**
 * A runner for CopilotKit's runtime that keeps its threads on the ledger. A thread is a session.
 *
 *   new CopilotRuntime({ agents, runner: new SessionLedgerRunner({ address: "127.0.0.1:9000" }) })
 *
 * A thread has one run at a time, in all processes: a run begins by a claim. `connect` reads the log, so
 * any process answers it, also after a restart.
 */
import { Observable, type Subscriber } from "rxjs";
import { isObject } from "@session-ledger/agui/json";
import { ledger, type LedgerClient } from "../../client.ts";
import { RpcFailure } from "../../failure.ts";
import type { WriterProblem } from "../../writer/types.ts";
import type { AgentEvent } from "../bridge.ts";
import {
  clientOf,
  type LedgerConnection,
  eventsToRunEnd,
  LOST_AFTER_MS,
  RETRY,
  RunLost,
  sessionOf,
} from "./follow-run.ts";
import { CopilotKitRun, type CopilotKitRunRequest } from "./copilotkit-run.ts";

export interface SessionLedgerRunnerOptions extends LedgerConnection {
  /**
   * An open run of another process without a new row for this time counts as lost: the next run takes its
   * place, and `connect` ends with RUN_ERROR. Default 60,000 milliseconds.
   */
  readonly lostAfterMs?: number;
  /** Called with the problems of writing. */
  readonly onProblem?: (threadId: string, problem: WriterProblem) => void;
}

/** `Event` is CopilotKit's BaseEvent; TypeScript finds it by itself. */
export class SessionLedgerRunner<Event extends AgentEvent = AgentEvent> {
  readonly #options: SessionLedgerRunnerOptions & { readonly lostAfterMs: number };
  readonly #client: LedgerClient;
  readonly #runs = new Map<string, CopilotKitRun<Event>>();

  constructor(options: SessionLedgerRunnerOptions) {
    this.#options = { lostAfterMs: LOST_AFTER_MS, ...options };
    this.#client = clientOf(options);
  }

  /** The agent runs to its end, also without a subscriber. Throws while this process runs the thread. */
  run(request: CopilotKitRunRequest<Event>): Observable<Event> {
    const { threadId } = request;
    if (this.#runs.has(threadId)) throw new Error("Thread already running");
    const onEnded = (): void => void this.#runs.delete(threadId);
    const run = new CopilotKitRun<Event>(request, {
      ...this.#options,
      client: this.#client,
      onEnded,
    });
    this.#runs.set(threadId, run);
    return run.events.asObservable();
  }

  /** The events of the thread so far, and of the open run to its end. */
  connect({ threadId }: { readonly threadId: string }): Observable<Event> {
    return new Observable<Event>((subscriber) => {
      const leaving = new AbortController();
      void this.#replay(threadId, subscriber, leaving.signal);
      return () => leaving.abort();
    });
  }

  async isRunning({ threadId }: { readonly threadId: string }): Promise<boolean> {
    const run = this.#runs.get(threadId);
    if (run !== undefined) return !run.isStopping;
    return (await sessionOf(this.#client, threadId))?.openRunId !== undefined;
  }

  /** True: the run was asked to end, here or in another process. With a `runId`, only that run. */
  async stop({
    threadId,
    runId,
  }: {
    readonly threadId: string;
    readonly runId?: string;
  }): Promise<boolean> {
    const run = this.#runs.get(threadId);
    if (run !== undefined) return run.stop(runId);
    const open = (await sessionOf(this.#client, threadId))?.openRunId;
    if (open === undefined || (runId !== undefined && runId !== open)) return false;
    const asked = { sessionId: threadId, runId: open, reason: "stopped in CopilotKit" };
    try {
      await this.#client.call(ledger.cancelRun, asked, RETRY);
      return true;
    } catch (error) {
      if (error instanceof RpcFailure && error.reason === "RUN_NOT_FOUND") return false;
      throw error;
    }
  }

  /** Stops the runs of this process, and resolves when the ledger has their ends. */
  async close(): Promise<void> {
    const runs = [...this.#runs.values()];
    for (const run of runs) run.stop();
    await Promise.all(runs.map((run) => run.ended));
    this.#client.close();
  }

  async #replay(
    threadId: string,
    subscriber: Subscriber<Event>,
    signal: AbortSignal,
  ): Promise<void> {
    const { address, token, tls, lostAfterMs } = this.#options;
    const connection = { address, ...(token && { token }), ...(tls && { tls }) };
    try {
      const own = this.#runs.get(threadId);
      await own?.started;
      const session = await sessionOf(this.#client, threadId);
      const limits = { lostAfterMs: own === undefined ? lostAfterMs : Infinity, signal };
      const branchSeq = session && (await this.#newestBranch(threadId));
      if (session !== undefined)
        for await (const { seq, payload } of eventsToRunEnd(session, {
          ...connection,
          ...limits,
        })) {
          subscriber.next(this.#served(payload));
          if (seq === branchSeq) subscriber.next(await this.#snapshotAt(threadId, seq));
        }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof RunLost)) return subscriber.error(error);
      const { message } = error;
      subscriber.next(
        this.#served(JSON.stringify({ type: "RUN_ERROR", message, code: "STALLED" })),
      );
    }
    subscriber.complete();
  }

  /** The number of the RUN_STARTED that begins it; undefined: one branch, or unknown. */
  async #newestBranch(sessionId: string): Promise<bigint | undefined> {
    try {
      const { branches } = await this.#client.call(ledger.getTranscript, { sessionId }, RETRY);
      const left = branches.at(-1);
      return left === undefined ? undefined : left + 1n;
    } catch (error) {
      if (error instanceof RpcFailure && error.code === "RESOURCE_EXHAUSTED") return undefined;
      throw error;
    }
  }

  /** The part of the conversation before the newest branch that the branch includes. */
  async #snapshotAt(sessionId: string, upToSeq: bigint): Promise<Event> {
    const asked = { sessionId, upToSeq };
    const { messages } = await this.#client.call(ledger.getTranscript, asked, RETRY);
    return this.#served(`{"type":"MESSAGES_SNAPSHOT","messages":${messages}}`);
  }

  /** AG-UI clients before 1.0.0 refuse the outcome of a cancelled run. */
  #served(payload: string): Event {
    const event: Event = JSON.parse(payload);
    const { outcome } = event;
    const isCancelled = isObject(outcome) && outcome["type"] === "cancelled";
    return isCancelled ? { ...event, outcome: undefined } : event;
  }
}
