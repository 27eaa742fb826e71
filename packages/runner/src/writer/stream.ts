/**
 * One call of PushSessionEvents for one producer, from Open to its end. It sends the producer's events
 * and settles the acknowledged ones. `nextStep` decides, and the loop in `#send` does it:
 *
 *              ┌─────────── a frame is due ───────────┐
 *              ▼                                      │
 *   waiting ─► send ─► coalesce ─► (all sent) ─► flush, if asked for ─► waiting for Committed
 *                                                                          │         │
 *                                       stalled: nothing acknowledged ◄────┘         ▼
 *                                                                         end: nothing waits
 *
 * The first event after a pause is sent at once. Events that follow within COALESCE_MS share a
 * frame, because tokens come one by one and each frame has a cost at both ends.
 *
 * Two loops: `#send`, and `#read`, which reads frames and sets signals. No committed event is
 * sent again: Opened states the last committed number, and sending begins after it.
 */
import { setTimeout as timeout } from "node:timers/promises";
import {
  type Committed,
  Compression,
  type Opened,
  type PushSessionEventsRequestSchema,
  type PushSessionEventsResponse,
  type PushSessionEventsResponseSchema,
  type Refused,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { within } from "@session-ledger/base/timers";
import { type Conversation, ledger, type LedgerClient } from "../client.ts";
import { asRpcFailure, failureOfStatus, RpcFailure } from "../failure.ts";
import { timestampOf } from "../rows.ts";
import { type Producer, sendableUpTo } from "../spool/spool.ts";
import { type SharedState, reasonOf } from "./writer-state.ts";
import type { SenderParts } from "./connection.ts";
import type { CheckedOptions } from "./options.ts";

type ResponseFrames = AsyncGenerator<PushSessionEventsResponse, void, undefined>;
type PushCall = Conversation<
  typeof PushSessionEventsRequestSchema,
  typeof PushSessionEventsResponseSchema
>;

/** The time for a service to end its side after ours; then the call is cut. */
const GOODBYE_MS = 1_000;

export class EventPushStream {
  readonly #shared: SharedState;
  readonly #producer: Producer;
  readonly #options: CheckedOptions;
  /** The producer's number of the last event that was sent on this stream. */
  #sent = 0n;
  #unacknowledgedBytes = 0;
  #unacknowledgedBytesMax = 0;
  #isBlocked = false;
  /** The value of `#sent` at the newest request for a flush. */
  #flushed = 0n;
  #sentMs = Number.NEGATIVE_INFINITY;
  #progressMs: number;
  /** Set when the service has ended the stream. */
  #end: { readonly failure: RpcFailure } | undefined;
  /** True: the producer continues without this stream, and later frames of it are ignored. */
  #isLeft = false;
  /** True: something was acknowledged, so the failures before this stream no longer count. */
  hasProgressed = false;
  /** True: the service has answered Open. */
  wasOpened = false;

  constructor({ shared, options }: SenderParts, producer: Producer) {
    this.#shared = shared;
    this.#producer = producer;
    this.#options = options;
    this.#progressMs = shared.clock.monotonicMs();
  }

  /** Resolves when nothing is left, or the writer has ended. Rejects with an RpcFailure. */
  async run(client: LedgerClient): Promise<void> {
    const { signal } = this.#shared.ending;
    const call = await client.converse(ledger.pushSessionEvents, { signal });
    try {
      call.send({ frame: { case: "open", value: this.#open() } });
      await this.#begin(await this.#opened(call));
      const reading = this.#read(call.responses);
      await this.#send(call);
      call.end();
      await Promise.race([reading, pause(GOODBYE_MS, signal)]);
    } finally {
      this.#isLeft = true;
      call.cancel();
    }
  }

  #open() {
    const { sessionId, maxAgeMs, textBytesMax, merges } = this.#options;
    const { epoch, proposed } = this.#producer;
    return {
      sessionId,
      producerEpoch: epoch ?? proposed ?? 0n,
      compression: merges ? Compression.ON : Compression.OFF,
      maxAgeMs,
      maxTextBytes: textBytesMax,
    };
  }

  /** Waits for the first frame, up to a limit. */
  async #opened(call: PushCall): Promise<Opened> {
    const limitMs = this.#options.openTimeoutMs;
    const first = await within(call.responses.next(), {
      limitMs,
      onTimeout: () =>
        Promise.reject(timedOut("the opening of the stream was not answered", limitMs)),
    });
    if (first.done !== true && first.value.frame.case === "opened") return first.value.frame.value;
    throw new RpcFailure("UNAVAILABLE", "the stream ended before it was opened");
  }

  async #begin(opened: Opened): Promise<void> {
    this.wasOpened = true;
    const producer = this.#producer;
    const settled = producer.events.frontNumber - 1n;
    // These refusals belong to earlier users of the epoch.
    if (producer.base === undefined) producer.refusals = opened.refused;
    // A service without acknowledged events was restored. The numbers continue from its position.
    const lost = producer.base === undefined ? 0n : producer.base + settled - opened.lastClientSeq;
    const hasLost = lost > 0n;
    if (hasLost) {
      producer.refusals = opened.refused;
      this.#shared.report({ kind: "lost", stream: "events", count: Number(lost) });
    }
    const base =
      hasLost || producer.base === undefined ? opened.lastClientSeq - settled : producer.base;
    this.#shared.setEpoch(producer, opened.producerEpoch, base);
    // A later process must know the epoch of the sent events.
    await this.#shared.producersWritten();
    this.#unacknowledgedBytesMax = Number(opened.maxUnacknowledgedBytes);
    const committed = opened.lastClientSeq - base;
    // The process of a left producer may have sent all of it.
    if (producer.sent !== undefined && committed > producer.sent) throw epochTaken();
    if (committed > settled) this.#settle(committed, Number(opened.refused - producer.refusals));
    this.#sent = producer.events.frontNumber - 1n;
    this.#flushed = this.#sent;
    this.#progressMs = this.#shared.clock.monotonicMs();
    this.#shared.activity = "streaming";
  }

  async #send(call: PushCall): Promise<void> {
    const { signal } = this.#shared.ending;
    for (;;) {
      if (this.#end !== undefined) throw this.#end.failure;
      if (this.#shared.hasEnded) return;
      const step = nextStep(this.#view(), this.#options);
      switch (step.kind) {
        case "send":
          this.#sendFrame(call);
          break;
        case "flush":
          this.#flushed = this.#sent;
          call.send({ frame: { case: "flush", value: {} } });
          break;
        case "coalesce":
          await pause(step.forMs, signal);
          break;
        case "wait":
          await this.#shared.eventSignal.wait(step.forMs);
          break;
        case "stalled":
          throw timedOut("nothing was acknowledged", this.#options.progressTimeoutMs);
        case "end":
          return;
      }
    }
  }

  #sendFrame(call: PushCall): void {
    const { events, base = 0n } = this.#producer;
    const first = this.#sent + 1n;
    const end = sendableUpTo(this.#producer);
    const frame: { payload: string; occurredAt: ReturnType<typeof timestampOf> }[] = [];
    let bytes = 0;
    for (;;) {
      const record = this.#sent < end ? events.at(this.#sent + 1n) : undefined;
      if (record === undefined || frame.length === FRAME_EVENTS_MAX) break;
      if (frame.length > 0 && bytes + record.bytes > FRAME_BYTES_MAX) break;
      frame.push({ payload: record.payload, occurredAt: timestampOf(record.atMicros) });
      bytes += record.bytes;
      this.#sent += 1n;
    }
    const producer = this.#producer;
    if (producer.sent !== undefined && this.#sent > producer.sent) producer.sent = this.#sent;
    const nowMs = this.#shared.clock.monotonicMs();
    if (this.#unacknowledgedBytes === 0) this.#progressMs = nowMs;
    this.#unacknowledgedBytes += bytes;
    this.#sentMs = nowMs;
    const batch = { firstClientSeq: base + first, events: frame };
    this.#isBlocked = !call.send({ frame: { case: "batch", value: batch } });
    if (this.#isBlocked) void this.#unblock(call);
  }

  async #unblock(call: PushCall): Promise<void> {
    await call.drained();
    this.#isBlocked = false;
    this.#shared.eventSignal.set();
  }

  async #read(frames: ResponseFrames): Promise<void> {
    let failure = new RpcFailure("UNAVAILABLE", "the stream ended");
    try {
      for await (const { frame } of frames) {
        if (this.#isLeft) return;
        if (frame.case === "refused") this.#onRefused(frame.value);
        if (frame.case === "committed") this.#onCommitted(frame.value);
        if (frame.case === "cancel") this.#shared.run.cancel(frame.value);
      }
    } catch (error) {
      failure = asRpcFailure(error);
    }
    this.#end = { failure };
    this.#shared.eventSignal.set();
  }

  #onRefused({ clientSeq, status }: Refused): void {
    const { base = 0n, events, refused } = this.#producer;
    const number = clientSeq - base;
    // The refusal concerns no event that waits for it.
    if (number < events.frontNumber || number > this.#sent) return;
    if (refused.has(number)) return; // Reported on the previous stream, which broke.
    refused.add(number);
    this.#shared.reportRefused("events", reasonOf(failureOfStatus(status)));
  }

  #onCommitted({ lastClientSeq, lastSeq }: Committed): void {
    const { base = 0n, events, refused } = this.#producer;
    const number = lastClientSeq - base;
    // Later events would be lost silently.
    if (number > this.#sent)
      throw new RpcFailure("INTERNAL", "the service acknowledged events that were not sent");
    this.#shared.lastSeq = lastSeq;
    if (number < events.frontNumber) return; // An old number is no progress.
    this.#settle(number, [...refused].filter((one) => one <= number).length);
  }

  #settle(number: bigint, refused: number): void {
    const { events, refused: reported } = this.#producer;
    for (let at = events.frontNumber; at <= number && at <= this.#sent; at += 1n) {
      this.#unacknowledgedBytes -= events.at(at)?.bytes ?? 0;
    }
    let unseen = refused;
    for (const one of reported) if (one <= number && reported.delete(one)) unseen -= 1;
    if (unseen > 0) this.#shared.reportRefused("events", UNSEEN, unseen);
    this.#progressMs = this.#shared.clock.monotonicMs();
    this.hasProgressed = true;
    this.#shared.settleEvents(this.#producer, number, { refused });
  }

  #view(): StreamView {
    const { events, isLeft } = this.#producer;
    const nowMs = this.#shared.clock.monotonicMs();
    const settled = events.frontNumber - 1n;
    // A producer that was given up meanwhile has nothing left to send.
    if (this.#sent < settled) this.#sent = settled;
    return {
      unsentEvents: Math.max(0, Number(sendableUpTo(this.#producer) - this.#sent)),
      unacknowledgedEvents: Number(this.#sent - settled),
      unacknowledgedBytes: this.#unacknowledgedBytes,
      unacknowledgedBytesMax: this.#unacknowledgedBytesMax,
      isBlocked: this.#isBlocked,
      wantsFlush: this.#flushed < this.#sent && this.#shared.wantsFlush(this.#producer),
      isLeft,
      wantsCancels: this.#shared.wantsCancels(this.#producer),
      sinceSentMs: nowMs - this.#sentMs,
      sinceProgressMs: nowMs - this.#progressMs,
      sinceActiveMs: nowMs - Math.max(this.#progressMs, this.#sentMs),
    };
  }
}

/** Another writer has numbered events under our epoch: ours would count as duplicates. */
function epochTaken(): RpcFailure {
  const reason = "STALE_EPOCH";
  return new RpcFailure("FAILED_PRECONDITION", "another writer uses this epoch", { reason });
}

function timedOut(what: string, timeoutMs: number): RpcFailure {
  return new RpcFailure("DEADLINE_EXCEEDED", `${what} within ${timeoutMs} ms`);
}

/** Refusals of a stream that broke before it could report them. */
const UNSEEN = {
  reason: "UNKNOWN",
  message: "refused on a stream that broke before the reason came",
};

/** Resolves after `ms`, or at once when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await timeout(ms, undefined, { signal }).catch(() => undefined);
}

interface StreamView {
  /** Events that are in the spool and were not sent on this stream. */
  readonly unsentEvents: number;
  /** Events that were sent and are not settled, and the bytes of their payloads. */
  readonly unacknowledgedEvents: number;
  readonly unacknowledgedBytes: number;
  /** The limit from Opened: above it the service stops reading. */
  readonly unacknowledgedBytesMax: number;
  /** True when the transport is full. */
  readonly isBlocked: boolean;
  /** A caller waits for a commit of the sent events, and no flush was asked for yet. */
  readonly wantsFlush: boolean;
  /** True for the producer of an earlier process: no event will be added. */
  readonly isLeft: boolean;
  /** True: the caller waits for a cancel of the run. */
  readonly wantsCancels: boolean;
  readonly sinceSentMs: number;
  /** The time since the last acknowledgement, or since the first unacknowledged event. */
  readonly sinceProgressMs: number;
  /** The time since the last activity of any kind. */
  readonly sinceActiveMs: number;
}

type StreamStep =
  | { readonly kind: "send" | "flush" | "stalled" | "end" }
  /** Until then no event changes the decision. */
  | { readonly kind: "coalesce"; readonly forMs: number }
  /** Until something happens, but no longer. */
  | { readonly kind: "wait"; readonly forMs: number };

/** The limit of one frame. Well below the 4 MiB of a request: the last event may exceed it. */
const FRAME_BYTES_MAX = 256 * 1024;
const FRAME_EVENTS_MAX = 512;
/** Not noticeable for a watcher, and at most a hundred frames per second. */
const COALESCE_MS = 10;

export function nextStep(
  view: StreamView,
  limits: Pick<CheckedOptions, "progressTimeoutMs" | "idleTimeoutMs">,
): StreamStep {
  const isUnanswered = view.unacknowledgedEvents > 0;
  const quietMs = limits.progressTimeoutMs - view.sinceProgressMs;
  if (isUnanswered && quietMs <= 0) return { kind: "stalled" };
  // One event may always be sent, with any size.
  const unsettledBytes = view.unacknowledgedBytes;
  const isFull = unsettledBytes > 0 && unsettledBytes >= view.unacknowledgedBytesMax;
  const mayPass = !view.isBlocked && !isFull;
  if (view.unsentEvents > 0 && mayPass) {
    const dueMs = COALESCE_MS - view.sinceSentMs;
    const isDue = dueMs <= 0 || view.unsentEvents >= FRAME_EVENTS_MAX;
    return isDue ? { kind: "send" } : { kind: "coalesce", forMs: dueMs };
  }
  if (isUnanswered) {
    const flushes = view.unsentEvents === 0 && view.wantsFlush;
    return flushes ? { kind: "flush" } : { kind: "wait", forMs: quietMs };
  }
  if (view.unsentEvents > 0) return { kind: "wait", forMs: limits.progressTimeoutMs };
  const idleMs = limits.idleTimeoutMs - view.sinceActiveMs;
  if (view.wantsCancels) return { kind: "wait", forMs: limits.idleTimeoutMs };
  return view.isLeft || idleMs <= 0 ? { kind: "end" } : { kind: "wait", forMs: idleMs };
}
