/**
 * One call of PushSessionEvents for one lane, from Open to its end. It sends the events of the lane
 * and settles the acknowledged ones; stream-step.ts decides the next step.
 *
 * There are two loops: this one sends, another reads frames and rings. No committed event is sent
 * again: Opened states the last committed number, and sending begins after it.
 */
import {
  type Committed,
  Compression,
  type Opened,
  type PushSessionEventsRequestSchema,
  type PushSessionEventsResponse,
  type PushSessionEventsResponseSchema,
  type Refused,
} from "../../../gen/ambient/v1/event_stream_pb.ts";
import { type Book, reasonOf } from "./book.ts";
import { ledger, type LedgerClient } from "../client.ts";
import type { Conversation } from "../client.ts";
import { asRpcFailure, failureOfStatus, RpcFailure } from "../failure.ts";
import type { Lane } from "../spool/spool.ts";
import {
  FRAME_BYTES_MAX,
  FRAME_EVENTS_MAX,
  nextStep,
  type StreamStep,
  type StreamView,
} from "./stream-step.ts";
import { timestampOf } from "../rows.ts";
import { delay } from "./pause.ts";

export interface EventStreamOptions {
  readonly sessionId: string;
  readonly maxAgeMs: number;
  readonly textBytesMax: number;
  readonly merges: boolean;
  readonly openTimeoutMs: number;
  readonly progressTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

/**
 * done, idle: there is nothing to send, or the writer has ended; a lane that gets more opens
 * another stream.
 */
export type StreamEnd = "done" | "idle";

type Frames = AsyncGenerator<PushSessionEventsResponse, void, undefined>;
type Call = Conversation<
  typeof PushSessionEventsRequestSchema,
  typeof PushSessionEventsResponseSchema
>;

/** The time for a service to end its side after ours; then the call is cut. */
const GOODBYE_MS = 1_000;

export class EventStream {
  readonly #book: Book;
  readonly #lane: Lane;
  readonly #options: EventStreamOptions;
  /** The number in the lane of the last event that was sent on this stream. */
  #sent = 0n;
  #unacknowledgedBytes = 0;
  #unacknowledgedBytesMax = 0;
  #isBlocked = false;
  /** The value of `#sent` at the newest request for a flush. */
  #flushed = 0n;
  #sentMs: number;
  #progressMs: number;
  #over: { readonly failure: RpcFailure } | undefined;
  /** True: the lane continues without this stream, and later frames of it are ignored. */
  #isLeft = false;
  /** True: something was acknowledged, so the failures before this stream no longer count. */
  hasProgressed = false;
  /** True: the service has answered Open. */
  wasOpened = false;

  constructor(book: Book, lane: Lane, options: EventStreamOptions) {
    this.#book = book;
    this.#lane = lane;
    this.#options = options;
    this.#progressMs = book.clock.monotonicMs();
    this.#sentMs = Number.NEGATIVE_INFINITY;
  }

  /** Rejects with an RpcFailure when the stream breaks. */
  async run(client: LedgerClient): Promise<StreamEnd> {
    const { signal } = this.#book.ending;
    const call = await client.converse(ledger.pushSessionEvents, { signal });
    try {
      call.send({ frame: { case: "open", value: this.#open() } });
      await this.#begin(await this.#opened(call));
      const reading = this.#read(call.responses);
      const end = await this.#send(call);
      call.end();
      await Promise.race([reading, delay(GOODBYE_MS, signal)]);
      return end;
    } finally {
      this.#isLeft = true;
      call.cancel();
    }
  }

  #open() {
    const { sessionId, maxAgeMs, textBytesMax, merges } = this.#options;
    const { epoch, proposed } = this.#lane;
    return {
      sessionId,
      producerEpoch: epoch ?? proposed ?? 0n,
      compression: merges ? Compression.ON : Compression.OFF,
      maxAgeMs,
      maxTextBytes: textBytesMax,
    };
  }

  /** Waits for the first frame, up to a limit. */
  async #opened(call: Call): Promise<Opened> {
    const { openTimeoutMs } = this.#options;
    const timer = setTimeout(() => {
      this.#over = { failure: late("the stream was not answered", openTimeoutMs) };
      call.cancel();
    }, openTimeoutMs);
    try {
      const first = await call.responses.next();
      if (first.done !== true && first.value.frame.case === "opened")
        return first.value.frame.value;
      throw new RpcFailure("UNAVAILABLE", "the stream ended before it began");
    } catch (error) {
      throw this.#over?.failure ?? error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #begin(opened: Opened): Promise<void> {
    this.wasOpened = true;
    const lane = this.#lane;
    const settled = lane.events.frontNumber - 1n;
    // These refusals belong to earlier users of the epoch.
    if (lane.base === undefined) lane.refusals = opened.refused;
    // A service that lacks acknowledged events was restored from a backup. The lost events stay
    // lost, and the numbers continue from the service's position.
    const lost = lane.base === undefined ? 0n : lane.base + settled - opened.lastClientSeq;
    const isBehind = lost > 0n;
    if (isBehind) {
      lane.refusals = opened.refused;
      this.#book.tell({ kind: "lost", stream: "events", count: Number(lost) });
    }
    const base = isBehind || lane.base === undefined ? opened.lastClientSeq - settled : lane.base;
    this.#book.opened(lane, opened.producerEpoch, base);
    // A later process must know the epoch of the sent events.
    await this.#book.lanesWritten();
    this.#unacknowledgedBytesMax = Number(opened.maxUnacknowledgedBytes);
    const committed = opened.lastClientSeq - base;
    // The process of a left lane may have sent all of it.
    if (lane.sent !== undefined && committed > lane.sent) throw taken();
    if (committed > settled) this.#settle(committed, Number(opened.refused - lane.refusals));
    this.#sent = lane.events.frontNumber - 1n;
    this.#flushed = this.#sent;
    this.#progressMs = this.#book.clock.monotonicMs();
    this.#book.activity = "streaming";
  }

  async #send(call: Call): Promise<StreamEnd> {
    for (;;) {
      if (this.#over !== undefined) throw this.#over.failure;
      if (this.#book.hasEnded) return "done";
      const step = nextStep(this.#view(), this.#options);
      if (step.kind === "done" || step.kind === "idle") return step.kind;
      await this.#take(step, call);
    }
  }

  async #take(step: StreamStep, call: Call): Promise<void> {
    const { progressTimeoutMs } = this.#options;
    switch (step.kind) {
      case "send":
        return this.#sendFrame(call);
      case "flush":
        this.#flushed = this.#sent;
        call.send({ frame: { case: "flush", value: {} } });
        return;
      case "coalesce":
        return delay(step.forMs, this.#book.ending.signal);
      case "wait":
        return this.#book.eventBell.wait({ timeoutMs: step.forMs });
      case "stalled":
        throw late("nothing was acknowledged", progressTimeoutMs);
      case "done":
      case "idle":
    }
  }

  #sendFrame(call: Call): void {
    const { events, base = 0n } = this.#lane;
    const first = this.#sent + 1n;
    const frame: { payload: string; occurredAt: ReturnType<typeof timestampOf> }[] = [];
    let bytes = 0;
    for (;;) {
      const record = events.at(this.#sent + 1n);
      if (record === undefined || frame.length === FRAME_EVENTS_MAX) break;
      if (frame.length > 0 && bytes + record.bytes > FRAME_BYTES_MAX) break;
      frame.push({ payload: record.payload, occurredAt: timestampOf(record.atMicros) });
      bytes += record.bytes;
      this.#sent += 1n;
    }
    const lane = this.#lane;
    if (lane.sent !== undefined && this.#sent > lane.sent) lane.sent = this.#sent;
    const nowMs = this.#book.clock.monotonicMs();
    if (this.#unacknowledgedBytes === 0) this.#progressMs = nowMs;
    this.#unacknowledgedBytes += bytes;
    this.#sentMs = nowMs;
    const batch = { firstClientSeq: base + first, events: frame };
    this.#isBlocked = !call.send({ frame: { case: "batch", value: batch } });
    if (this.#isBlocked) void this.#unblock(call);
  }

  async #unblock(call: Call): Promise<void> {
    await call.drained();
    this.#isBlocked = false;
    this.#book.eventBell.ring();
  }

  async #read(frames: Frames): Promise<void> {
    let failure = new RpcFailure("UNAVAILABLE", "the stream ended");
    try {
      for await (const { frame } of frames) {
        if (this.#isLeft) return;
        if (frame.case === "refused") this.#refuse(frame.value);
        if (frame.case === "committed") this.#committed(frame.value);
      }
    } catch (error) {
      failure = asRpcFailure(error);
    }
    this.#over = { failure };
    this.#book.eventBell.ring();
  }

  #refuse({ clientSeq, status }: Refused): void {
    const { base = 0n, events, refused } = this.#lane;
    const number = clientSeq - base;
    // The refusal concerns no event that waits for it.
    if (number < events.frontNumber || number > this.#sent) return;
    if (refused.has(number)) return; // Reported on the previous stream, which broke.
    refused.add(number);
    this.#book.tell({
      kind: "refused",
      stream: "events",
      count: 1,
      ...reasonOf(failureOfStatus(status)),
    });
  }

  #committed({ lastClientSeq, lastSeq }: Committed): void {
    const { base = 0n, events, refused } = this.#lane;
    const number = lastClientSeq - base;
    // Later events would be lost silently.
    if (number > this.#sent)
      throw new RpcFailure("INTERNAL", "the service acknowledged what it was not sent");
    this.#book.lastSeq = lastSeq;
    if (number < events.frontNumber) return; // An old number is no progress.
    this.#settle(number, [...refused].filter((one) => one <= number).length);
  }

  #settle(number: bigint, refused: number): void {
    const { events, refused: told } = this.#lane;
    for (let at = events.frontNumber; at <= number && at <= this.#sent; at += 1n) {
      this.#unacknowledgedBytes -= events.at(at)?.bytes ?? 0;
    }
    let unseen = refused;
    for (const one of told) if (one <= number && told.delete(one)) unseen -= 1;
    this.#tellRefusedUnseen(unseen);
    this.#progressMs = this.#book.clock.monotonicMs();
    this.hasProgressed = true;
    this.#book.settleEvents(this.#lane, number, { refused });
  }

  /** Reports refusals of a stream that broke before it could report them. */
  #tellRefusedUnseen(count: number): void {
    if (count <= 0) return;
    const message = "refused on a stream that broke before the reason came";
    this.#book.tell({ kind: "refused", stream: "events", count, reason: "UNKNOWN", message });
  }

  #view(): StreamView {
    const { events, isLeft } = this.#lane;
    const nowMs = this.#book.clock.monotonicMs();
    const settled = events.frontNumber - 1n;
    // A lane that was given up meanwhile has nothing left to send.
    if (this.#sent < settled) this.#sent = settled;
    return {
      unsentEvents: Number(events.lastNumber - this.#sent),
      unacknowledgedEvents: Number(this.#sent - settled),
      unacknowledgedBytes: this.#unacknowledgedBytes,
      unacknowledgedBytesMax: this.#unacknowledgedBytesMax,
      isBlocked: this.#isBlocked,
      wantsFlush: this.#flushed < this.#sent && this.#book.wantsFlush(this.#lane),
      isLeft,
      sinceSentMs: nowMs - this.#sentMs,
      sinceProgressMs: nowMs - this.#progressMs,
      sinceActiveMs: nowMs - Math.max(this.#progressMs, this.#sentMs),
    };
  }
}

/**
 * Another writer has numbered events under our epoch: our events would count as duplicates of them.
 */
function taken(): RpcFailure {
  const reason = "STALE_EPOCH";
  return new RpcFailure("FAILED_PRECONDITION", "another writer uses this epoch", { reason });
}

function late(what: string, timeoutMs: number): RpcFailure {
  return new RpcFailure("DEADLINE_EXCEEDED", `${what} within ${timeoutMs} ms`);
}
