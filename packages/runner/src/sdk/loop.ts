/**
 * A runner: it gives the turns of a session to an agent, and writes what the agent does.
 *
 *   await createRunner(new MyBridge(), { address: "127.0.0.1:9000", sessionId: "s1" }).run();
 *
 * A stop (SIGTERM, SIGINT) takes no more turns. A run may end within `cancelGraceMs`, then it is
 * interrupted, and has the same time again. Unstored records are then in the spool's file.
 */
import { isDoneWithin } from "@session-ledger/base/timers";
import { checkOptions, type Checks, integer, ofType, oneOf, unchecked } from "../checks.ts";
import { checkedOptions } from "../writer/options.ts";
import { ledger } from "../client.ts";
import type { AgentEvent, RunCaller, PlatformBridge, RunInput } from "./bridge.ts";
import { RunnerCore, type RunnerOptions } from "./core.ts";
import { endpointsOf, type Fetch } from "./http/endpoints.ts";
import type { RunnerStats } from "./metrics.ts";
import { SessionPool, type PoolOptions } from "./pool.ts";
import { type ServeOptions, RunnerSession } from "./session.ts";
import { type AgentFunction, FunctionBridge } from "./text-agent.ts";

export interface Runner {
  /**
   * Claims and runs the turns of `sessionId`. Resolves after a stop. Rejects with an RpcFailure when
   * the service takes nothing more: another runner took over (STALE_EPOCH), the session was deleted,
   * permission is missing.
   */
  run(): Promise<void>;
  /**
   * Serves many sessions. Resolves after a stop. Rejects with an RpcFailure when the runner may not
   * watch the sessions.
   */
  pool(options?: PoolOptions): Promise<void>;
  /** Ends `run` and `pool`, as SIGTERM and SIGINT do. Never rejects, and may be called again. */
  stop(): Promise<void>;
  /** The endpoints (docs/writing.md) as a web-standard handler, which never rejects. */
  readonly fetch: Fetch;
  readonly stats: RunnerStats;
}

/**
 * Gives turns to an agent: a function from the input of a run to its texts and events, or a bridge.
 * Connects with the first call. Throws a RangeError or TypeError for an invalid option.
 */
export function createRunner(
  agent: PlatformBridge | AgentFunction,
  options: RunnerOptions,
): Runner {
  checkOptions("options", options, CHECKS);
  const bridge = typeof agent === "function" ? new FunctionBridge(agent) : agent;
  const core = new RunnerCore(bridge, options);
  const { sessionId = "any", epoch } = options;
  checkedOptions({ ...core.writerOptions(sessionId), ...(epoch !== undefined && { epoch }) });
  const sessions = new SessionMap(core);
  return {
    async run() {
      if (options.sessionId === undefined) throw new TypeError("run needs options.sessionId");
      core.report(sessionId);
      await sessions.untilSignal(() => sessions.serve(sessionId, { waits: true, epoch }));
    },
    async pool(poolOptions = {}) {
      const serve = (id: string, first: bigint) => sessions.visit(id, first);
      const pool = new SessionPool({ core, serve }, poolOptions);
      await sessions.untilSignal(() => pool.run());
    },
    stop: () => sessions.stop(),
    fetch: endpointsOf({
      bridge,
      begin: (input, signal, caller) => sessions.begin(input, signal, caller),
      switchModel: (model) => core.switchModel(model),
      giveFeedback: (feedback) => core.client.call(ledger.giveFeedback, feedback),
      sessionId: options.sessionId,
      runnerToken: options.runnerToken,
      prefix: options.httpPrefix,
    }),
    get stats() {
      return core.stats.stats;
    },
  };
}

interface Used {
  readonly session: RunnerSession;
  /** Loops and runs over HTTP. */
  users: number;
}

/** The sessions that a runner serves, until it stops. One is left when nothing uses it any more. */
class SessionMap {
  readonly #core: RunnerCore;
  readonly #byId = new Map<string, Used>();
  readonly #served = new Set<Promise<void>>();
  #stopped: Promise<void> | undefined;

  constructor(core: RunnerCore) {
    this.#core = core;
  }

  #enter(id: string, epoch?: bigint): RunnerSession {
    const users = id === this.#core.options.sessionId ? 1 : 0; // That one stays.
    const used = this.#byId.get(id) ?? { session: new RunnerSession(this.#core, id, epoch), users };
    used.users += 1;
    this.#byId.set(id, used);
    return used.session;
  }

  async #leave(id: string): Promise<void> {
    const used = this.#byId.get(id);
    if (used === undefined) return;
    used.users -= 1;
    if (used.users > 0) return;
    await used.session.close();
    if (used.users === 0) this.#byId.delete(id);
  }

  /** Begins a run over HTTP. */
  async begin(
    input: RunInput,
    signal: AbortSignal,
    caller: RunCaller,
  ): Promise<AsyncGenerator<AgentEvent>> {
    const { threadId: id } = input;
    try {
      return this.#untilEnd(id, await this.#enter(id).begin(input, signal, caller));
    } catch (error) {
      await this.#leave(id);
      throw error;
    }
  }

  async *#untilEnd(id: string, events: AsyncGenerator<AgentEvent>): AsyncGenerator<AgentEvent> {
    try {
      yield* events;
    } finally {
      await this.#leave(id);
    }
  }

  /** SIGTERM and SIGINT stop the runner, and do not end the process: it ends when its work has. */
  async untilSignal(work: () => Promise<void>): Promise<void> {
    const onSignal = (): void => void this.stop();
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
    try {
      await work();
    } finally {
      await this.#stopped;
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
    }
  }

  async serve(id: string, options: ServeOptions & { epoch?: bigint | undefined }): Promise<void> {
    const served = this.#serve(id, options);
    this.#served.add(served);
    try {
      await served;
    } finally {
      this.#served.delete(served);
    }
  }

  async #serve(
    id: string,
    { epoch, ...options }: ServeOptions & { epoch?: bigint | undefined },
  ): Promise<void> {
    const session = this.#enter(id, epoch);
    try {
      await session.serve(options);
    } finally {
      await session.close();
      await this.#leave(id);
      // A stop waits for it, and closes the connection then.
      if (!options.waits) await this.#core.reportStopped(id);
    }
  }

  /** For a pool: serves a session until no message waits, and leaves it. */
  visit(id: string, epoch: bigint): Promise<void> {
    return this.serve(id, { waits: false, epoch });
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const core = this.#core;
    core.stop();
    const sessions = [...this.#byId.values()].map(({ session }) => session);
    const ended = Promise.allSettled([...this.#served, ...sessions.map((one) => one.idle)]);
    if (!(await isDoneWithin(core.graceMs, ended))) core.interrupt();
    await ended;
    await Promise.allSettled(sessions.map((session) => session.close()));
    await core.bridge.shutdown().catch(() => undefined);
    await core.reportStopped();
    core.client.close();
  }
}

const CHECKS: Checks<RunnerOptions> = {
  // The options of a writer check these.
  address: unchecked,
  token: unchecked,
  tls: unchecked,
  sessionId: unchecked,
  epoch: unchecked,
  spool: unchecked,
  messagesMax: integer(1, 1_000),
  tokensMax: integer(1, Number.MAX_SAFE_INTEGER),
  layout: oneOf("split", "combined"),
  name: unchecked,
  cancelGraceMs: integer(1, 3_600_000),
  middleware: unchecked,
  runnerToken: ofType("string"),
  httpPrefix: ofType("string"),
  context: unchecked,
  onProblem: ofType("function"),
};
