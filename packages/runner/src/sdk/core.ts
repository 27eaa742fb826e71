/** Shared state of a runner: options, connection, abort signals, status reports. */
import { systemClock } from "@session-ledger/base/clock";
import { createLedgerClient, ledger, type LedgerClient } from "../client.ts";
import { RpcFailure, textOf } from "../failure.ts";
import type { RetryOptions } from "../retry.ts";
import type { Layout } from "../turn-blocks.ts";
import type { SessionWriterOptions, WriterProblem } from "../writer/types.ts";
import type { PlatformBridge, PlatformContext } from "./bridge.ts";
import { agentCapabilities } from "./capabilities.ts";
import { TurnStats } from "./metrics.ts";
import type { Middleware } from "./middleware/middleware.ts";
import { developerEvents } from "./middleware/developer-events.ts";
import { RunnerStopped } from "./run.ts";

/** The settings of an agent that do not depend on its session. */
export type AgentSettings = Omit<PlatformContext, "sessionId" | "isContinuation">;

export interface RunnerOptions
  extends Pick<SessionWriterOptions, "address" | "token" | "tls" | "epoch" | "spool"> {
  /** The session of `run`. */
  readonly sessionId?: string;
  /**
   * The name of this runner, in the metadata of each RUN_STARTED as `runner`. A pool uses it: choose one
   * that this runner has again after a restart and no other one has, such as the name of its pod.
   */
  readonly name?: string;
  /** The most messages of a turn: 1 to 1,000; default 10. */
  readonly messagesMax?: number;
  /** The most tokens of a turn, estimated, delimiters included; default: no limit. */
  readonly tokensMax?: number;
  /** How the messages of a turn are packed; default `split`. */
  readonly layout?: Layout;
  /** How long a cancelled agent may take to end, milliseconds; default 10,000. */
  readonly cancelGraceMs?: number;
  /**
   * Applied to the events of a run before they are written, in this order. Default: the notes of the
   * bridge are added; `platformMiddleware` adds redaction and traces.
   */
  readonly middleware?: readonly Middleware[];
  /** All endpoints of `fetch` but `/health` need it as a bearer token; default: none does. */
  readonly runnerToken?: string;
  /** The path in front of the endpoints, such as `/agent`; default: none. */
  readonly httpPrefix?: string;
  /** The context for creating an adapter. */
  readonly context?: AgentSettings;
  /** Called with problems, in a separate turn of the event loop. Its errors are ignored. */
  readonly onProblem?: (problem: RunnerProblem) => void;
}

export type RunnerProblem =
  | (WriterProblem & { readonly sessionId: string })
  /** A call failed and is tried again, for as long as the service is away. Reported once in a row. */
  | { readonly kind: "retrying"; readonly sessionId: string; readonly message: string }
  /** The phase or the capabilities could not be reported. */
  | { readonly kind: "status"; readonly sessionId: string; readonly message: string }
  /** A mistake in the bridge, an event of its agent that had to be replaced, or a file that it cannot take. */
  | { readonly kind: "agent"; readonly sessionId: string; readonly message: string }
  /** A pool has left a session, or could not look for sessions (then `sessionId` is empty). */
  | { readonly kind: "left"; readonly sessionId: string; readonly message: string };

const GRACE_MS = 10_000;
/** How long a stop waits for the report of its phase. */
const REPORT_MS = 2_000;

export class RunnerCore {
  readonly bridge: PlatformBridge;
  readonly options: RunnerOptions;
  readonly client: LedgerClient;
  readonly stats = new TurnStats(systemClock);
  readonly graceMs: number;
  readonly middleware: readonly Middleware[];
  #context: AgentSettings;
  readonly #reported = new Set<string>();
  readonly #stopping = new AbortController();
  readonly #interrupting = new AbortController();

  constructor(bridge: PlatformBridge, options: RunnerOptions) {
    const { address, token, tls, cancelGraceMs = GRACE_MS, context = {} } = options;
    this.bridge = bridge;
    this.options = options;
    this.client = createLedgerClient({ address, token, tls });
    this.graceMs = cancelGraceMs;
    this.middleware = options.middleware ?? [developerEvents()];
    this.#context = context;
    bridge.notes.onProblem = (message, sessionId) =>
      this.reportProblem({ kind: "agent", sessionId, message });
  }

  /** Aborts when no more turns are taken. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Aborts when the runs in progress must end. */
  get interrupting(): AbortSignal {
    return this.#interrupting.signal;
  }

  get context(): AgentSettings {
    return this.#context;
  }

  /** Applies to adapters created later. Returns the earlier model. */
  switchModel(model: string): string | undefined {
    const { model: earlier } = this.#context;
    this.#context = { ...this.#context, model };
    return earlier;
  }

  stop(): void {
    this.#stopping.abort(new RunnerStopped());
  }

  interrupt(): void {
    this.#interrupting.abort(new RunnerStopped());
  }

  /** Reports the phase and the capabilities of the agent, once a session. Never waits. */
  report(sessionId: string): void {
    if (this.#reported.has(sessionId)) return;
    this.#reported.add(sessionId);
    const capabilities = JSON.stringify(agentCapabilities(this.bridge.capabilities()));
    const callOptions = { ...this.retry(sessionId), signal: this.stopping };
    void this.#update({ id: sessionId, phase: "Running", capabilities }, callOptions);
  }

  /** The runner leaves these sessions: all that it has reported, or one. */
  async reportStopped(sessionId?: string): Promise<void> {
    const left = [...this.#reported].filter((id) => sessionId === undefined || id === sessionId);
    for (const id of left) this.#reported.delete(id);
    const options = this.stopping.aborted ? { deadlineMs: REPORT_MS } : {};
    await Promise.all(left.map((id) => this.#update({ id, phase: "Stopped" }, options)));
  }

  async #update(
    status: { readonly id: string; readonly phase: string; readonly capabilities?: string },
    options: object,
  ): Promise<void> {
    const { id: sessionId } = status;
    try {
      await this.client.call(ledger.updateSessionStatus, status, options);
    } catch (error) {
      this.#reported.delete(sessionId);
      // The first message makes the session, and its turn reports again.
      if (error instanceof RpcFailure && error.code === "NOT_FOUND") return;
      if (!this.stopping.aborted)
        this.reportProblem({ kind: "status", sessionId, message: textOf(error) });
    }
  }

  /** Options of a call that is repeated for as long as the service is away. */
  retry(sessionId: string): Pick<RetryOptions, "retryForMs" | "onRetry"> {
    return {
      retryForMs: Number.POSITIVE_INFINITY,
      onRetry: ({ message }, count) => {
        if (count === 1) this.reportProblem({ kind: "retrying", sessionId, message });
      },
    };
  }

  writerOptions(sessionId: string): SessionWriterOptions {
    const { address, token, tls } = this.options;
    return {
      address,
      sessionId,
      ...(token !== undefined && { token }),
      ...(tls !== undefined && { tls }),
      spool: this.#spoolOf(sessionId),
      lifecycleMessages: false,
      onProblem: (problem) => this.reportProblem({ ...problem, sessionId }),
    };
  }

  /** Each session has a separate file. */
  #spoolOf(sessionId: string): NonNullable<RunnerOptions["spool"]> {
    const { spool = {}, sessionId: only } = this.options;
    const { file } = spool;
    if (file === undefined || sessionId === only) return spool;
    return { ...spool, file: `${file}.${sessionId}` };
  }

  reportProblem(problem: RunnerProblem): void {
    const { onProblem } = this.options;
    if (onProblem === undefined) return;
    const call = async (): Promise<unknown> => onProblem(problem);
    queueMicrotask(() => void call().catch(() => undefined));
  }
}
