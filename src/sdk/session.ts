/**
 * One session of a runner: it claims turns, and runs each with the agent. `serve` is the loop.
 *
 *   records that an earlier process left ─► sent first: a claim would fence them
 *   claim ─► input ─► agent ─► middleware ─► writer ─► all is stored ─► claim …
 *
 * The claim and the writer have one epoch. So another runner with a higher one ends this one, and a
 * killed runner that starts again takes over its own run.
 */
import { once } from "node:events";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { SessionMessage } from "../../gen/ambient/v1/messages_pb.ts";
import type { ClaimTurnResponse } from "../../gen/ambient/v1/turns_pb.ts";
import { isObject, parseJson, parseObject } from "../agui/json.ts";
import { systemClock } from "../base/clock.ts";
import { ledger } from "../runner/client.ts";
import { RpcFailure, textOf } from "../runner/failure.ts";
import { arrivalsOf, turnSize } from "../runner/turn-blocks.ts";
import { proposedEpoch } from "../runner/writer/book.ts";
import type { SessionWriter } from "../runner/writer/types.ts";
import { createSessionWriter } from "../runner/writer/writer.ts";
import type { AgentEvent, AgentMessage, Caller, RunInput } from "./bridge.ts";
import type { Core } from "./core.ts";
import { toRunAgentInput, type TurnInput } from "./input.ts";
import { metadataOf, through } from "./middleware/middleware.ts";
import { eventsOfAgent, MEMBER_BYTES_MAX, startOf } from "./run.ts";

const CLAIM_WAIT_S = 60n;
const CLAIM_DEADLINE_MS = 70_000;
/** One attempt to store everything; the loop repeats it while the service is away. */
const FLUSH_MS = 60_000;
/** How long the end of a run waits for its MESSAGES_SNAPSHOT, for each of two steps. */
const SNAPSHOT_MS = 5_000;
/** How long a stop waits for the service. */
const CLOSE_MS = 5_000;
const PAGE_SIZE = 1_000;

type Turn = ClaimTurnResponse & {
  readonly runStarted: NonNullable<ClaimTurnResponse["runStarted"]>;
};

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
  /** The run in progress; a session has one at a time. */
  #running: Promise<void> | undefined;
  #hadRun = false;
  /** Tokens of the envelopes of turns that no claim has reported yet. */
  #envelopeTokens = 0;

  constructor(core: Core, id: string, epoch = proposedEpoch(systemClock)) {
    this.#core = core;
    this.id = id;
    this.#epoch = epoch;
  }

  /**
   * Resolves when the runner stops, or when no message waits. Rejects when the service takes nothing
   * more: another runner took over (STALE_EPOCH), the session is deleted, permission is missing.
   */
  async serve({ waits }: ServeOptions): Promise<void> {
    const { stopping } = this.#core;
    await this.#sendLeft();
    while (!stopping.aborted) {
      const turn = await this.#claim(waits);
      if (turn !== undefined) await this.#runTurn(turn);
      else if (!waits) return;
    }
  }

  /** Resolves when no run is in progress. */
  get idle(): Promise<void> {
    return this.#running ?? Promise.resolve();
  }

  /** Ends the writer. What the service does not take in time is in the file of the spool, if any. */
  async close(): Promise<void> {
    await this.idle;
    await this.#writer?.close({ timeoutMs: CLOSE_MS });
    this.#writer = undefined;
  }

  /**
   * A run that was not claimed. Its events come as the ledger gets them, also RUN_STARTED; read them to
   * the end, because the run goes on only then.
   */
  async *run(
    input: RunInput,
    signal: AbortSignal,
    caller: Caller,
  ): AsyncGenerator<AgentEvent, void, undefined> {
    const started = startOf(this.id, input);
    yield* this.#events({
      input: { ...input, threadId: this.id },
      signal,
      started,
      isStored: false,
      caller,
    });
  }

  /** Sends what an earlier process has left in the file of the spool, under its own epoch. */
  async #sendLeft(): Promise<void> {
    const options = this.#core.writerOptions(this.id);
    if (options.spool?.file === undefined) return;
    const writer = createSessionWriter(options);
    await this.#stored(writer);
    await writer.close({ timeoutMs: CLOSE_MS });
  }

  /** Undefined: no message waits, or the runner stops. */
  async #claim(waits: boolean): Promise<Turn | undefined> {
    const { client, options, middleware, stopping, interrupting } = this.#core;
    // A claim without a wait is not cut: its turn would have a run and no runner.
    const signal = waits ? stopping : interrupting;
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
      ...(await this.#size()),
      ...(waits && { wait: { seconds: CLAIM_WAIT_S } }),
    };
    try {
      const again = { ...this.#core.retry(this.id), deadlineMs: CLAIM_DEADLINE_MS, signal };
      const { runStarted, ...answer } = await client.call(ledger.claimTurn, request, again);
      if (runStarted === undefined) return undefined;
      this.#epoch = answer.producerEpoch;
      this.#envelopeTokens = 0;
      return { ...answer, runStarted };
    } catch (error) {
      if (signal.aborted || reasonOf(error) === "NOTHING_WAITS") return undefined;
      if (reasonOf(error) !== "RUN_OPEN" || this.#writer === undefined) throw error;
      // The open run is one of this runner: in progress, or without an end, because the spool was full.
      if (this.#running === undefined) await this.#renew();
      await this.idle;
      return undefined;
    }
  }

  /** The messages of the next turn, by the limit of messages and by that of tokens. */
  async #size(): Promise<{ readonly messagesMax: number; readonly upToSeq?: bigint }> {
    const { client, options, stopping } = this.#core;
    const { messagesMax = 0, tokensMax, layout } = options;
    if (tokensMax === undefined) return { messagesMax };
    const again = { ...this.#core.retry(this.id), signal: stopping };
    try {
      const { turnSeq: afterSeq, waiting } = await client.call(
        ledger.getSession,
        { id: this.id },
        again,
      );
      // Of the messages that come during the wait, the first one is taken.
      if (waiting === 0n) return { messagesMax: 1 };
      const page = {
        sessionId: this.id,
        afterSeq,
        eventTypes: ["user"],
        pageSize: messagesMax || 10,
      };
      const { items } = await client.call(ledger.listSessionMessages, page, again);
      const sizes = items.map((row) => arrivalsOf([row]));
      const packing = { boundary: "", ...(layout && { layout }) };
      let left = turnSize(sizes.flat(), tokensMax, packing);
      const end = sizes.findIndex(({ length }) => (left -= length) < 0);
      const last = items[end === -1 ? items.length - 1 : Math.max(0, end - 1)];
      return { messagesMax, ...(last && { upToSeq: last.seq }) };
    } catch (error) {
      if (error instanceof RpcFailure && error.code === "NOT_FOUND") return { messagesMax: 1 };
      if (stopping.aborted) return { messagesMax };
      throw error;
    }
  }

  async #runTurn({ runStarted, messages: rows }: Turn): Promise<void> {
    const { stats } = this.#core;
    const started = eventOf(runStarted.payload);
    const runId = String(started["runId"]);
    this.#core.report(this.id);
    const writer = this.#openWriter();
    const signal = writer.runSignal(runId);
    const lostBefore = lostIn(writer);
    let last: AgentEvent | undefined;
    try {
      const { input, metrics, hasHistory } = await this.#inputOf({ runId, rows, signal });
      this.#hadRun ||= hasHistory;
      stats.began({ ...metrics, waitMs: waitMsOf(rows) });
      this.#envelopeTokens += metrics.envelopeTokens;
      const events = this.#events({ input, signal, started, isStored: true });
      for await (const event of events) last = event;
    } catch (error) {
      last = { type: "RUN_ERROR", message: `the turn has no input: ${textOf(error)}` };
      writer.event(last);
    }
    await this.#stored(writer, runId);
    if (lostIn(writer) !== lostBefore && (await this.#isOpen(runId))) {
      last = { type: "RUN_ERROR", message: "the end of the run was refused or dropped" };
      writer.event(last);
      await this.#stored(writer, runId);
    }
    stats.ended({ hasFailed: last?.type !== "RUN_FINISHED" });
  }

  async #inputOf(turn: {
    readonly runId: string;
    readonly rows: readonly SessionMessage[];
    readonly signal: AbortSignal;
  }): Promise<TurnInput> {
    const { client, bridge, options, interrupting } = this.#core;
    const { runId, rows } = turn;
    const again = {
      ...this.#core.retry(this.id),
      signal: AbortSignal.any([turn.signal, interrupting]),
    };
    const asked = { sessionId: this.id };
    const { messages, state, upToMessageSeq } = await client.call(
      ledger.getTranscript,
      asked,
      again,
    );
    const waiting: SessionMessage[] = [];
    const page = { ...asked, eventTypes: ["user"], pageSize: PAGE_SIZE };
    for (let afterSeq = rows.at(-1)?.seq ?? 0n; afterSeq < upToMessageSeq; ) {
      const next = await client.call(ledger.listSessionMessages, { ...page, afterSeq }, again);
      waiting.push(...next.items);
      if (!next.hasMore) break;
      afterSeq = next.nextAfterSeq;
    }
    return toRunAgentInput(
      { sessionId: this.id, runId, rows },
      {
        transcript: messagesIn(messages),
        waiting,
        ...(state !== undefined && { state: parseJson(state) }),
        onlyNew: bridge.capabilities().sessionPersistence,
        boundary: crypto.randomUUID(),
        ...(options.layout && { layout: options.layout }),
      },
    );
  }

  /** The events of a run, each written before it is yielded. Never throws. */
  async *#events(run: {
    readonly input: RunInput;
    readonly signal: AbortSignal;
    readonly started: AgentEvent;
    readonly isStored: boolean;
    readonly caller?: Caller;
  }): AsyncGenerator<AgentEvent, void, undefined> {
    const { bridge, middleware, interrupting, context, graceMs } = this.#core;
    while (this.#running !== undefined) await this.#running;
    const ended = new AbortController();
    this.#running = once(ended.signal, "abort").then(() => undefined);
    const writer = this.#openWriter();
    const { input, started, caller } = run;
    const signal = AbortSignal.any([run.signal, writer.runSignal(input.runId), interrupting]);
    const platform = { ...context, sessionId: this.id, isContinuation: this.#hadRun };
    this.#hadRun = true;
    let hasSnapshot = false;
    let last: AgentEvent | undefined;
    try {
      const agent = eventsOfAgent({ bridge, input, platform, signal, graceMs, started, caller });
      const about = { sessionId: this.id, runId: input.runId, input, bridge, signal };
      for await (const event of through(middleware, agent, about)) {
        hasSnapshot ||= event.type === "MESSAGES_SNAPSHOT";
        if (event.type === "RUN_FINISHED" && !hasSnapshot) {
          const snapshot = await this.#snapshot(writer);
          if (snapshot !== undefined) {
            writer.event(snapshot);
            yield snapshot;
          }
        }
        if (event.type !== "RUN_STARTED" || !run.isStored) writer.event(event);
        last = event;
        yield event;
      }
      if (last?.type !== "RUN_FINISHED" && last?.type !== "RUN_ERROR") {
        throw new Error("a middleware has dropped the end of the run");
      }
    } catch (error) {
      const failed = { type: "RUN_ERROR", message: textOf(error) };
      writer.event(failed);
      yield failed;
    } finally {
      this.#running = undefined;
      ended.abort();
    }
  }

  /** Undefined: the service is away, or the conversation is longer than a payload may be. */
  async #snapshot(writer: SessionWriter): Promise<AgentEvent | undefined> {
    const { client, stopping } = this.#core;
    if (stopping.aborted) return undefined;
    try {
      const { complete } = await writer.flush({ timeoutMs: SNAPSHOT_MS });
      if (!complete) return undefined;
      const options = { deadlineMs: SNAPSHOT_MS, signal: stopping };
      const asked = { sessionId: this.id };
      const { messages } = await client.call(ledger.getTranscript, asked, options);
      if (Buffer.byteLength(messages) > MEMBER_BYTES_MAX) return undefined;
      return { type: "MESSAGES_SNAPSHOT", messages: messagesIn(messages) };
    } catch {
      return undefined;
    }
  }

  /** Resolves when the service has everything, or the runner stops. Rejects when it takes no more. */
  async #stored(writer: SessionWriter, runId = ""): Promise<void> {
    const { stopping } = this.#core;
    for (;;) {
      const timeoutMs = stopping.aborted ? CLOSE_MS : FLUSH_MS;
      const { complete, state } = await writer.flush({ timeoutMs });
      if (state === "fenced" && runId !== "" && (await this.#wasCancelled(runId))) {
        return this.#renew();
      }
      if (state === "fenced" || state === "refused") throw writer.runSignal(runId).reason;
      if (complete || stopping.aborted) return;
    }
  }

  async #isOpen(runId: string): Promise<boolean> {
    const asked = this.#core.client.call(
      ledger.getSession,
      { id: this.id },
      { deadlineMs: CLOSE_MS },
    );
    return asked.then(({ openRunId }) => openRunId === runId).catch(() => false);
  }

  /** True: the service has ended the run, because the cancel did not reach this runner in time. */
  async #wasCancelled(runId: string): Promise<boolean> {
    const { client, stopping } = this.#core;
    const options = { ...this.#core.retry(this.id), signal: stopping };
    const end = { sessionId: this.id, runId, eventTypes: ["RUN_FINISHED"], pageSize: 1 };
    const [{ items }, { openRunId }] = await Promise.all([
      client.call(ledger.listSessionEvents, end, options),
      client.call(ledger.getSession, { id: this.id }, options),
    ]);
    const outcome = eventOf(items[0]?.payload ?? "{}")["outcome"];
    return openRunId === undefined && isObject(outcome) && outcome["type"] === "cancelled";
  }

  /** Continues under a higher epoch: its next claim ends a run that is still open. */
  async #renew(): Promise<void> {
    await this.close();
    const proposed = proposedEpoch(systemClock);
    this.#epoch = proposed > this.#epoch ? proposed : this.#epoch + 1n;
  }

  #openWriter(): SessionWriter {
    this.#writer ??= createSessionWriter({
      ...this.#core.writerOptions(this.id),
      ...(this.#epoch !== 0n && { epoch: this.#epoch }),
    });
    return this.#writer;
  }
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

/** The service makes messages with an id and a role, and nothing else. */
function messagesIn(json: string): readonly AgentMessage[] {
  const messages = parseJson(json);
  return Array.isArray(messages) ? messages : [];
}

/** How long the first message of the turn has waited, by the clock of this machine. */
function waitMsOf([first]: readonly SessionMessage[]): number {
  return first?.createdAt === undefined
    ? 0
    : Math.max(0, Date.now() - timestampMs(first.createdAt));
}
