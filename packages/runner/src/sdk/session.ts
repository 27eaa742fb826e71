/**
 * One session of a runner: it claims turns, and runs each with the agent. `serve` is the loop.
 *
 *   records that an earlier process left ─► sent first: a claim would fence them
 *   claim ─► input ─► agent ─► middleware ─► writer ─► all is stored ─► claim …
 *
 * The claim and the writer have one epoch. So another runner with a higher one ends this one, and a
 * killed runner that starts again takes over its own run.
 */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { ClaimTurnResponse } from "@session-ledger/proto/ambient/v1/turns_pb";
import { parseObject } from "@session-ledger/agui/json";
import { PAYLOAD_BYTES_MAX } from "@session-ledger/agui/payload";
import { systemClock } from "@session-ledger/base/clock";
import { ledger } from "../client.ts";
import { RpcFailure, textOf } from "../failure.ts";
import { proposedEpoch } from "../writer/writer-state.ts";
import type { SessionWriter } from "../writer/types.ts";
import { createSessionWriter } from "../writer/writer.ts";
import type { AgentEvent, RunCaller, RunInput } from "./bridge.ts";
import { TurnReader } from "./turn-reader.ts";
import type { RunnerCore } from "./core.ts";
import { fitPayload } from "./payload-limits.ts";
import { metadataOf, through } from "./middleware/middleware.ts";
import { type SessionLease, SessionLock } from "./session-lock.ts";
import { eventsOfAgent, startOf } from "./run.ts";

const CLAIM_WAIT_S = 60n;
const CLAIM_DEADLINE_MS = 70_000;
/** One attempt to store everything; the loop repeats it while the service is away. */
const FLUSH_MS = 60_000;
/** How long a stop, and a run over HTTP at its end, waits for the service. */
const CLOSE_MS = 5_000;
/** The limit of one row, unless the service has another PAYLOAD_BYTES_MAX. */
const ROW = {
  max: PAYLOAD_BYTES_MAX,
  sizeOf: (text: string) => Buffer.byteLength(text),
};
/** How long a run over HTTP waits for the lock that a claim holds. */
const LOCK_MS = 10_000;

type StartedTurn = ClaimTurnResponse & {
  readonly runStarted: NonNullable<ClaimTurnResponse["runStarted"]>;
};

type RunEvents = AsyncGenerator<AgentEvent, void, undefined>;

interface SettleOptions {
  readonly runId: string;
  /** The writer's lost events before the run. */
  readonly lostBefore: number;
  /** True: one attempt, because a reader waits. */
  readonly once?: boolean;
}

export interface ServeOptions {
  /** True: wait for messages until the runner stops. False: leave when no message waits. */
  readonly waits: boolean;
}

export class RunnerSession {
  readonly id: string;
  readonly #core: RunnerCore;
  /** 0n: the service assigns one at the first claim, without a take-over. */
  #epoch: bigint;
  #writer: SessionWriter | undefined;
  readonly #turns: TurnReader;
  readonly #lock: SessionLock;
  #hadRun = false;
  /** Tokens of the envelopes of turns that no claim has reported yet. */
  #envelopeTokens = 0;

  constructor(core: RunnerCore, id: string, epoch = proposedEpoch(systemClock)) {
    this.#core = core;
    this.id = id;
    this.#epoch = epoch;
    this.#turns = new TurnReader(core, id);
    this.#lock = new SessionLock(id);
  }

  /**
   * Resolves when the runner stops, or when no message waits. Rejects when the service takes nothing
   * more: another runner took over (STALE_EPOCH), the session is deleted, permission is missing.
   */
  async serve({ waits }: ServeOptions): Promise<void> {
    const { stopping } = this.#core;
    await this.#withLock(() => this.#sendLeftRecords());
    while (!stopping.aborted) {
      const hasRun = await this.#withLock((lease) => this.#nextTurn(waits, lease));
      if (!hasRun && !waits) return;
    }
  }

  /** Resolves when no run is in progress. */
  get idle(): Promise<void> {
    return this.#lock.idle;
  }

  /** Ends the writer. Records that the service does not take in time stay in the spool's file, if any. */
  async close(): Promise<void> {
    await this.#withLock(() => this.#closeWriter());
  }

  /** Begins a run that was not claimed. Read its events to the end. Rejects with RunInProgress. */
  async begin(input: RunInput, signal: AbortSignal, caller: RunCaller): Promise<RunEvents> {
    const late = new RpcFailure(
      "UNAVAILABLE",
      "the service does not tell whether a turn has begun",
    );
    const lease = await this.#lock.acquireForRun(abortedAfter(LOCK_MS, late, signal));
    return this.#runUnclaimed({ input: { ...input, threadId: this.id }, signal, caller }, lease);
  }

  async *#runUnclaimed(
    run: { readonly input: RunInput; readonly signal: AbortSignal; readonly caller: RunCaller },
    lease: SessionLease,
  ): RunEvents {
    try {
      const { runId } = run.input;
      const started = startOf(this.id, run.input);
      const lostBefore = lostIn(this.#openWriter());
      for await (const event of this.#events({ ...run, started, isStored: false })) {
        if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") lease.endRun();
        yield event;
      }
      // A writer that takes no more has reported it.
      await this.#settle({ runId, lostBefore, once: true }).catch(() => undefined);
    } finally {
      lease.release();
    }
  }

  async #withLock<T>(work: (lease: SessionLease) => Promise<T>): Promise<T> {
    const lease = await this.#lock.acquireForClaim();
    try {
      return await work(lease);
    } finally {
      lease.release();
    }
  }

  /** Sends the records of an earlier process in the spool's file, under its epoch. */
  async #sendLeftRecords(): Promise<void> {
    const options = this.#core.writerOptions(this.id);
    if (options.spool?.file === undefined || this.#writer !== undefined) return;
    const writer = createSessionWriter(options);
    await this.#waitUntilStored(writer);
    await writer.close({ timeoutMs: CLOSE_MS });
  }

  /** False: no message waits, or the runner stops. */
  async #nextTurn(waits: boolean, lease: SessionLease): Promise<boolean> {
    // The end of a run over HTTP may wait, and the service would begin the turn inside of that run.
    if (this.#writer !== undefined) await this.#waitUntilStored(this.#writer);
    const turn = await this.#claim(waits, lease.yieldSignal);
    if (turn === undefined) return false;
    lease.startRun();
    await this.#runTurn(turn, lease);
    return true;
  }

  /** Undefined: no message waits, the runner stops, or a run over HTTP waits for the lock. */
  async #claim(waits: boolean, yieldSignal: AbortSignal): Promise<StartedTurn | undefined> {
    const { client, options, middleware, stopping, interrupting } = this.#core;
    const runId = crypto.randomUUID();
    const metadata = {
      ...(options.name !== undefined && { runner: options.name }),
      ...metadataOf(middleware, runId),
    };
    const request = {
      sessionId: this.id,
      producerEpoch: this.#epoch,
      runStarted: JSON.stringify({ runId, metadata }),
      redeliver: true,
      envelopeTokens: BigInt(this.#envelopeTokens),
      ...(await this.#turns.turnSize()),
    };
    const claim = async (more: object, signal: AbortSignal): Promise<StartedTurn | undefined> => {
      const callOptions = { ...this.#core.retry(this.id), deadlineMs: CLAIM_DEADLINE_MS, signal };
      const turnRequest = { ...request, ...more };
      const { runStarted, ...answer } = await client.call(
        ledger.claimTurn,
        turnRequest,
        callOptions,
      );
      if (runStarted === undefined) return undefined;
      this.#epoch = answer.producerEpoch;
      this.#envelopeTokens = 0;
      return { ...answer, runStarted };
    };
    try {
      if (waits) {
        const cut = AbortSignal.any([stopping, yieldSignal]);
        try {
          return await claim({ wait: { seconds: CLAIM_WAIT_S } }, cut);
        } catch (error) {
          if (!cut.aborted) throw error;
          if (stopping.aborted) return undefined;
        }
      }
      // Not cut: its turn would have a run and no runner.
      return await claim({}, interrupting);
    } catch (error) {
      if (interrupting.aborted || reasonOf(error) === "NOTHING_WAITS") return undefined;
      if (reasonOf(error) !== "RUN_OPEN" || this.#writer === undefined) throw error;
      // The open run is one of this runner, and has no end, because the spool was full.
      await this.#renew();
      return undefined;
    }
  }

  async #runTurn({ runStarted, messages: rows }: StartedTurn, lease: SessionLease): Promise<void> {
    const { stats } = this.#core;
    const started = eventOf(runStarted.payload);
    const runId = String(started["runId"]);
    this.#core.report(this.id);
    const writer = this.#openWriter();
    const signal = writer.runSignal(runId);
    const lostBefore = lostIn(writer);
    let last: AgentEvent | undefined;
    try {
      const turn = await this.#turns.inputOf({ runId, rows, signal });
      const { input, metrics, hasHistory } = turn;
      this.#hadRun ||= hasHistory;
      stats.onTurnStart({ ...metrics, waitMs: waitMsOf(rows) });
      this.#envelopeTokens += metrics.envelopeTokens;
      const events = this.#events({ input, signal, started, isStored: true });
      for await (const event of events) last = event;
    } catch (error) {
      last = { type: "RUN_ERROR", message: `the turn has no input: ${textOf(error)}` };
      writer.event(last);
    }
    lease.endRun();
    const isWhole = await this.#settle({ runId, lostBefore });
    stats.onTurnEnd({ hasFailed: !isWhole || last?.type !== "RUN_FINISHED" });
  }

  /** Waits until a run is stored, and ends it if its end was lost (then false). */
  async #settle({ runId, lostBefore, once = false }: SettleOptions): Promise<boolean> {
    const writer = this.#openWriter();
    await this.#waitUntilStored(writer, { runId, once });
    if (lostIn(writer) === lostBefore || !(await this.#turns.isOpen(runId))) return true;
    writer.event({ type: "RUN_ERROR", message: "the end of the run was refused or dropped" });
    await this.#waitUntilStored(writer, { runId, once });
    return false;
  }

  /** The events of a run, each written before it is yielded. Never throws. */
  async *#events(run: {
    readonly input: RunInput;
    readonly signal: AbortSignal;
    readonly started: AgentEvent;
    readonly isStored: boolean;
    readonly caller?: RunCaller;
  }): RunEvents {
    const { bridge, middleware, interrupting, context, graceMs } = this.#core;
    const writer = this.#openWriter();
    const { input, started, caller } = run;
    const ending = new AbortController();
    const signals = [run.signal, writer.runSignal(input.runId), interrupting, ending.signal];
    const signal = AbortSignal.any(signals);
    const platform = { ...context, sessionId: this.id, isContinuation: this.#hadRun };
    this.#hadRun = true;
    let hasSnapshot = false;
    let last: AgentEvent | undefined;
    try {
      const onMistake = (message: string): void =>
        this.#core.reportProblem({ kind: "agent", sessionId: this.id, message });
      const agent = eventsOfAgent({
        bridge,
        input,
        platform,
        signal,
        ending,
        graceMs,
        started,
        caller,
        onMistake,
      });
      const runContext = { sessionId: this.id, runId: input.runId, input, bridge, signal };
      for await (const original of through(middleware, agent, runContext)) {
        const { event, text, problem, hasReplacedValues } = fitPayload(original, ROW);
        if (problem !== undefined) onMistake(problem);
        hasSnapshot ||= event.type === "MESSAGES_SNAPSHOT";
        if (event.type === "RUN_FINISHED" && !hasSnapshot) {
          const snapshot = await this.#turns.snapshot(writer);
          if (snapshot !== undefined) {
            writer.event(snapshot);
            yield snapshot;
          }
        }
        if (event.type !== "RUN_STARTED" || !run.isStored) {
          writer.event(hasReplacedValues === true ? original : text); // The writer counts and reports it.
        }
        last = event;
        const hasFailed = problem !== undefined && event.type === "RUN_ERROR";
        if (hasFailed) ending.abort(new Error(problem));
        yield event;
        if (hasFailed) break;
      }
      if (last?.type !== "RUN_FINISHED" && last?.type !== "RUN_ERROR") {
        throw new Error("a middleware has dropped the end of the run");
      }
    } catch (error) {
      const failed = { type: "RUN_ERROR", message: textOf(error) };
      writer.event(failed);
      yield failed;
    }
  }

  /** Resolves when all is stored, the runner stops, or after one attempt; rejects as `serve`. */
  async #waitUntilStored(writer: SessionWriter, { runId = "", once = false } = {}): Promise<void> {
    const { stopping } = this.#core;
    for (;;) {
      const timeoutMs = stopping.aborted || once ? CLOSE_MS : FLUSH_MS;
      const { complete, state } = await writer.flush({ timeoutMs });
      if (state === "fenced" && runId !== "" && (await this.#turns.wasCancelled(runId))) {
        return this.#renew();
      }
      if (state === "fenced" || state === "refused") throw writer.runSignal(runId).reason;
      if (complete || stopping.aborted || once) return;
    }
  }

  /** Continues under a higher epoch: its next claim ends a run that is still open. */
  async #renew(): Promise<void> {
    await this.#closeWriter();
    const proposed = proposedEpoch(systemClock);
    this.#epoch = proposed > this.#epoch ? proposed : this.#epoch + 1n;
  }

  #openWriter(): SessionWriter {
    if (this.#epoch === 0n) this.#epoch = proposedEpoch(systemClock);
    this.#writer ??= createSessionWriter({
      ...this.#core.writerOptions(this.id),
      epoch: this.#epoch,
    });
    return this.#writer;
  }

  async #closeWriter(): Promise<void> {
    await this.#writer?.close({ timeoutMs: CLOSE_MS });
    this.#writer = undefined;
  }
}

/** Aborts with `signal`, or with `reason` after a time. */
function abortedAfter(ms: number, reason: Error, signal: AbortSignal): AbortSignal {
  const late = new AbortController();
  setTimeout(() => late.abort(reason), ms).unref();
  return AbortSignal.any([signal, late.signal]);
}

function lostIn({ stats: { events } }: SessionWriter): number {
  return events.refused + events.dropped;
}

function reasonOf(error: unknown): string | undefined {
  return error instanceof RpcFailure ? error.reason : undefined;
}

function eventOf(payload: string): AgentEvent {
  return { type: "", ...parseObject(payload) };
}

/** How long the first message of the turn has waited, by the clock of this machine. */
function waitMsOf([first]: readonly SessionMessage[]): number {
  return first?.createdAt === undefined
    ? 0
    : Math.max(0, Date.now() - timestampMs(first.createdAt));
}
