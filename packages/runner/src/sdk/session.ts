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
import { proposedEpoch } from "../writer/book.ts";
import type { SessionWriter } from "../writer/types.ts";
import { createSessionWriter } from "../writer/writer.ts";
import type { AgentEvent, Caller, RunInput } from "./bridge.ts";
import { Conversation } from "./conversation.ts";
import type { Core } from "./core.ts";
import { fitting } from "./fitting.ts";
import { metadataOf, through } from "./middleware/middleware.ts";
import { type Hold, Place } from "./place.ts";
import { eventsOfAgent, startOf } from "./run.ts";

const CLAIM_WAIT_S = 60n;
const CLAIM_DEADLINE_MS = 70_000;
/** One attempt to store everything; the loop repeats it while the service is away. */
const FLUSH_MS = 60_000;
/** How long a stop, and a run over HTTP at its end, waits for the service. */
const CLOSE_MS = 5_000;
/** What the service stores as one row, unless its PAYLOAD_BYTES_MAX is another one. */
const ROW = {
  max: PAYLOAD_BYTES_MAX,
  sizeOf: (text: string) => Buffer.byteLength(text),
};
/** How long a run over HTTP waits for the place that a claim has. */
const PLACE_MS = 10_000;

type Turn = ClaimTurnResponse & {
  readonly runStarted: NonNullable<ClaimTurnResponse["runStarted"]>;
};

type RunEvents = AsyncGenerator<AgentEvent, void, undefined>;

interface Settled {
  readonly runId: string;
  /** What the writer had lost before the run. */
  readonly lostBefore: number;
  /** True: one attempt, because a reader waits. */
  readonly once?: boolean;
}

export interface ServeOptions {
  /** True: wait for messages until the runner stops. False: leave when no message waits. */
  readonly waits: boolean;
}

export class Session {
  readonly id: string;
  readonly #core: Core;
  /** 0n: the service assigns one at the first claim, without a take-over. */
  #epoch: bigint;
  #writer: SessionWriter | undefined;
  readonly #conversation: Conversation;
  readonly #place: Place;
  #hadRun = false;
  /** Tokens of the envelopes of turns that no claim has reported yet. */
  #envelopeTokens = 0;

  constructor(core: Core, id: string, epoch = proposedEpoch(systemClock)) {
    this.#core = core;
    this.id = id;
    this.#epoch = epoch;
    this.#conversation = new Conversation(core, id);
    this.#place = new Place(id);
  }

  /**
   * Resolves when the runner stops, or when no message waits. Rejects when the service takes nothing
   * more: another runner took over (STALE_EPOCH), the session is deleted, permission is missing.
   */
  async serve({ waits }: ServeOptions): Promise<void> {
    const { stopping } = this.#core;
    await this.#inPlace(() => this.#sendLeft());
    while (!stopping.aborted) {
      const hasRun = await this.#inPlace((hold) => this.#nextTurn(waits, hold));
      if (!hasRun && !waits) return;
    }
  }

  /** Resolves when no run is in progress. */
  get idle(): Promise<void> {
    return this.#place.idle;
  }

  /** Ends the writer. What the service does not take in time is in the file of the spool, if any. */
  async close(): Promise<void> {
    await this.#inPlace(() => this.#closeWriter());
  }

  /**
   * Begins a run that was not claimed. Its events come as the ledger gets them, also RUN_STARTED; read
   * them to the end, because the run goes on only then. Rejects with RunInProgress.
   */
  async begin(input: RunInput, signal: AbortSignal, caller: Caller): Promise<RunEvents> {
    const late = new RpcFailure(
      "UNAVAILABLE",
      "the service does not tell whether a turn has begun",
    );
    const hold = await this.#place.forRun(abortedAfter(PLACE_MS, late, signal));
    return this.#unclaimed({ input: { ...input, threadId: this.id }, signal, caller }, hold);
  }

  async *#unclaimed(
    run: { readonly input: RunInput; readonly signal: AbortSignal; readonly caller: Caller },
    hold: Hold,
  ): RunEvents {
    try {
      const { runId } = run.input;
      const started = startOf(this.id, run.input);
      const lostBefore = lostIn(this.#openWriter());
      for await (const event of this.#events({ ...run, started, isStored: false })) {
        if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") hold.over();
        yield event;
      }
      // A writer that takes no more has told it.
      await this.#settle({ runId, lostBefore, once: true }).catch(() => undefined);
    } finally {
      hold.leave();
    }
  }

  async #inPlace<T>(work: (hold: Hold) => Promise<T>): Promise<T> {
    const hold = await this.#place.forClaim();
    try {
      return await work(hold);
    } finally {
      hold.leave();
    }
  }

  /** Sends what an earlier process has left in the file of the spool, under its own epoch. */
  async #sendLeft(): Promise<void> {
    const options = this.#core.writerOptions(this.id);
    if (options.spool?.file === undefined || this.#writer !== undefined) return;
    const writer = createSessionWriter(options);
    await this.#stored(writer);
    await writer.close({ timeoutMs: CLOSE_MS });
  }

  /** False: no message waits, or the runner stops. */
  async #nextTurn(waits: boolean, hold: Hold): Promise<boolean> {
    // The end of a run over HTTP may wait, and the service would begin the turn inside of that run.
    if (this.#writer !== undefined) await this.#stored(this.#writer);
    const turn = await this.#claim(waits, hold.wanted);
    if (turn === undefined) return false;
    hold.began();
    await this.#runTurn(turn, hold);
    return true;
  }

  /** Undefined: no message waits, the runner stops, or a run over HTTP wants the place. */
  async #claim(waits: boolean, wanted: AbortSignal): Promise<Turn | undefined> {
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
      ...(await this.#conversation.turnSize()),
    };
    const ask = async (more: object, signal: AbortSignal): Promise<Turn | undefined> => {
      const again = { ...this.#core.retry(this.id), deadlineMs: CLAIM_DEADLINE_MS, signal };
      const asked = { ...request, ...more };
      const { runStarted, ...answer } = await client.call(ledger.claimTurn, asked, again);
      if (runStarted === undefined) return undefined;
      this.#epoch = answer.producerEpoch;
      this.#envelopeTokens = 0;
      return { ...answer, runStarted };
    };
    try {
      if (waits) {
        const cut = AbortSignal.any([stopping, wanted]);
        try {
          return await ask({ wait: { seconds: CLAIM_WAIT_S } }, cut);
        } catch (error) {
          if (!cut.aborted) throw error;
          if (stopping.aborted) return undefined;
        }
      }
      // Not cut: its turn would have a run and no runner. The same run again gets the turn of a claim
      // that was cut too late.
      return await ask({}, interrupting);
    } catch (error) {
      if (interrupting.aborted || reasonOf(error) === "NOTHING_WAITS") return undefined;
      if (reasonOf(error) !== "RUN_OPEN" || this.#writer === undefined) throw error;
      // The open run is one of this runner, and has no end, because the spool was full.
      await this.#renew();
      return undefined;
    }
  }

  async #runTurn({ runStarted, messages: rows }: Turn, hold: Hold): Promise<void> {
    const { stats } = this.#core;
    const started = eventOf(runStarted.payload);
    const runId = String(started["runId"]);
    this.#core.report(this.id);
    const writer = this.#openWriter();
    const signal = writer.runSignal(runId);
    const lostBefore = lostIn(writer);
    let last: AgentEvent | undefined;
    try {
      const turn = await this.#conversation.inputOf({ runId, rows, signal });
      const { input, metrics, hasHistory } = turn;
      this.#hadRun ||= hasHistory;
      stats.began({ ...metrics, waitMs: waitMsOf(rows) });
      this.#envelopeTokens += metrics.envelopeTokens;
      const events = this.#events({ input, signal, started, isStored: true });
      for await (const event of events) last = event;
    } catch (error) {
      last = { type: "RUN_ERROR", message: `the turn has no input: ${textOf(error)}` };
      writer.event(last);
    }
    hold.over();
    const isWhole = await this.#settle({ runId, lostBefore });
    stats.ended({ hasFailed: !isWhole || last?.type !== "RUN_FINISHED" });
  }

  /** Waits until a run is stored, and ends it if its end was lost (then false). */
  async #settle({ runId, lostBefore, once = false }: Settled): Promise<boolean> {
    const writer = this.#openWriter();
    await this.#stored(writer, { runId, once });
    if (lostIn(writer) === lostBefore || !(await this.#conversation.isOpen(runId))) return true;
    writer.event({ type: "RUN_ERROR", message: "the end of the run was refused or dropped" });
    await this.#stored(writer, { runId, once });
    return false;
  }

  /** The events of a run, each written before it is yielded. Never throws. */
  async *#events(run: {
    readonly input: RunInput;
    readonly signal: AbortSignal;
    readonly started: AgentEvent;
    readonly isStored: boolean;
    readonly caller?: Caller;
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
      const tell = (message: string): void =>
        this.#core.tell({ kind: "agent", sessionId: this.id, message });
      const agent = eventsOfAgent({
        bridge,
        input,
        platform,
        signal,
        ending,
        graceMs,
        started,
        caller,
        tell,
      });
      const about = { sessionId: this.id, runId: input.runId, input, bridge, signal };
      for await (const given of through(middleware, agent, about)) {
        const { event, text, problem, isMended } = fitting(given, ROW);
        if (problem !== undefined) tell(problem);
        hasSnapshot ||= event.type === "MESSAGES_SNAPSHOT";
        if (event.type === "RUN_FINISHED" && !hasSnapshot) {
          const snapshot = await this.#conversation.snapshot(writer);
          if (snapshot !== undefined) {
            writer.event(snapshot);
            yield snapshot;
          }
        }
        if (event.type !== "RUN_STARTED" || !run.isStored) {
          writer.event(isMended === true ? given : text); // The writer counts and reports it.
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

  /**
   * Resolves when the service has everything, the runner stops, or after one attempt. Rejects when the
   * service takes no more.
   */
  async #stored(writer: SessionWriter, { runId = "", once = false } = {}): Promise<void> {
    const { stopping } = this.#core;
    for (;;) {
      const timeoutMs = stopping.aborted || once ? CLOSE_MS : FLUSH_MS;
      const { complete, state } = await writer.flush({ timeoutMs });
      if (state === "fenced" && runId !== "" && (await this.#conversation.wasCancelled(runId))) {
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
