/**
 * Shared state of a writer: pending records, outcomes of the others, and callbacks. Every change of a
 * record's outcome goes through this class, so the counts, the file, the gap marks and the waiting
 * flushes always agree.
 *
 *   addEvent() ──► spool (live producer) ──► file        the agent's side: never waits
 *                    │ signals
 *                    ▼
 *   senders: producers of earlier processes, oldest first, then the live one ──► settle…
 *
 * A left producer is sent under its own epoch and is done when both its queues are empty. Only then the
 * next producer takes its epoch, because that fences the producer before it.
 */
import { JSON_DEPTH_MAX } from "@session-ledger/agui/payload";
import type { PrintedJson, ReplacedKind } from "@session-ledger/agui/print";
import { type Clock, msOf } from "@session-ledger/base/clock";
import { deferred } from "@session-ledger/base/deferred";
import type { RpcFailure } from "../failure.ts";
import type { SpoolFile } from "../spool/file.ts";
import {
  type DropGap,
  gapMark,
  isEmpty,
  type Producer,
  type MessageRecord,
  newProducer,
  sendableMessage,
  Spool,
} from "../spool/spool.ts";
import type { CheckedOptions } from "./options.ts";
import { RunSignal } from "./run-signal.ts";
import type { WriterProblem, WriterState, WriterStats } from "./types.ts";

const TOO_LARGE = {
  reason: "PAYLOAD_TOO_LARGE",
  message: "the record is larger than an empty spool",
};

const REPLACED = {
  bigint: "a BigInt was printed as a number, which most readers round above 2^53",
  circular: "a value that contains itself was replaced by a text",
  throwing: "a value whose own code throws was replaced by a text",
  depth: `a value nested deeper than ${JSON_DEPTH_MAX} levels was replaced by a text`,
} as const satisfies Record<ReplacedKind, string>;

interface FlushMark {
  readonly events: bigint;
  readonly messages: bigint;
  readonly resolve: () => void;
}

export class SharedState {
  readonly clock: Clock;
  readonly live: Producer;
  readonly eventSignal = new Signal();
  readonly messageSignal = new Signal();
  readonly run = new RunSignal();
  /** Aborts when the writer ends, for any reason. */
  readonly ending = new AbortController();
  /** The current activity of the event sender. */
  activity: "idle" | "connecting" | "streaming" = "idle";
  lastSeq = 0n;
  lastOfferedMs: number;
  #end: "fenced" | "refused" | "closed" | undefined;
  #left: readonly Producer[] = [];
  #file: SpoolFile | undefined;
  #isDropping = false;
  #hasReportedClosed = false;
  #flushes: FlushMark[] = [];
  /** By their kind: the values that could not be printed. */
  readonly #replaced = new Map<ReplacedKind, number>();
  readonly #spool: Spool;
  readonly #onProblem: CheckedOptions["onProblem"];

  constructor(clock: Clock, { bytesMax, epoch, onProblem }: CheckedOptions) {
    this.clock = clock;
    this.live = newProducer({ epoch, proposed: proposedEpoch(clock) });
    this.lastOfferedMs = clock.monotonicMs();
    this.#spool = new Spool({ bytesMax });
    this.#onProblem = onProblem;
  }

  get state(): WriterState {
    return this.#end ?? this.activity;
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  get stats(): WriterStats {
    return {
      events: this.#spool.events,
      messages: this.#spool.messages,
      pendingBytes: this.#spool.pendingBytes,
      replacedValues: [...this.#replaced.values()].reduce((sum, count) => sum + count, 0),
      state: this.state,
      lastSeq: this.lastSeq,
      epoch: this.live.epoch,
    };
  }

  /** The producer that is sent now. */
  get producer(): Producer {
    return this.#left[0] ?? this.live;
  }

  /** True: the stream of this producer stays open, to receive a cancel. */
  wantsCancels(producer: Producer): boolean {
    return producer === this.live && this.run.isOpen;
  }

  /** True: the producer is settled, and the next one is sent from now on. */
  leaveProducer(): boolean {
    if (this.#left[0] === undefined || !isEmpty(this.#left[0])) return false;
    this.#left = this.#left.slice(1);
    this.#setSignals();
    return true;
  }

  /** Call this before anything is sent: the file, and the producers found in it. */
  useFile(log: SpoolFile, left: readonly Producer[]): void {
    this.#file = log;
    this.#left = left.filter((producer) => !isEmpty(producer));
    for (const producer of this.#left) this.#spool.adopt(producer);
  }

  /** True: the waiting records are in the file. */
  async closeFile(): Promise<boolean> {
    return (await this.#file?.close()) === true;
  }

  addEvent(payload: string, atMicros: bigint): void {
    this.#offer("events", payload, () => this.#spool.offerEvent(this.live, payload, atMicros));
  }

  addMessage(message: Omit<MessageRecord, "bytes">, atMicros: bigint): void {
    this.#offer("messages", message.payload, () =>
      this.#spool.offerMessage(this.live, message, atMicros),
    );
  }

  #offer(stream: "events" | "messages", payload: string, offer: () => boolean): void {
    if (this.#end !== undefined) return this.#countLate(stream);
    if (!this.#spool.canHold(stream, payload)) return this.refuse(stream, TOO_LARGE);
    this.lastOfferedMs = this.clock.monotonicMs();
    if (!offer()) {
      if (!this.#isDropping) this.report({ kind: "dropping" });
      this.#isDropping = true;
      return;
    }
    this.#file?.changed();
    // Also for a message, which waits for the epoch that the event sender learns.
    this.eventSignal.set();
    if (stream === "messages") this.messageSignal.set();
  }

  /** A record that was refused without asking the service. */
  refuse(stream: "events" | "messages", reason: Reason): void {
    this.#spool.count(stream, "refused");
    this.reportRefused(stream, reason);
  }

  /** Values of a record that were printed in another way, by their kind. */
  countReplaced(stream: "events" | "messages", counts: PrintedJson["replaced"]): void {
    for (const [what, count] of counts) {
      const earlier = this.#replaced.get(what) ?? 0;
      this.#replaced.set(what, earlier + count);
      if (earlier === 0) this.report({ kind: "replaced", stream, what, message: REPLACED[what] });
    }
  }

  /** The service has assigned the producer's epoch, and stated its position. */
  setEpoch(producer: Producer, epoch: bigint, base: bigint): void {
    if (producer.epoch === epoch && producer.base === base) return;
    producer.epoch = epoch;
    producer.base = base;
    this.#file?.changed();
    this.messageSignal.set();
  }

  settleEvents(
    producer: Producer,
    number: bigint,
    { refused }: { readonly refused: number },
  ): void {
    producer.refusals += BigInt(refused);
    this.#spool.settleEvents(producer, number, { refused });
    this.#onSettled();
  }

  settleMessage(producer: Producer, outcome: "committed" | "refused"): void {
    this.#spool.settleMessage(producer, outcome);
    this.#onSettled();
  }

  /** Another writer took over the producer of an earlier process, or the writer ends. */
  giveUp(producer: Producer, kind: "fenced" | "ended", failure: RpcFailure): void {
    if (kind === "ended" || !producer.isLeft) return this.endWith(kind, failure);
    this.report({ kind: "left_lost", ...reasonOf(failure), ...this.#spool.dropProducer(producer) });
    this.#onSettled();
  }

  /** Gives up all records, and takes no more. */
  endWith(kind: "fenced" | "ended", failure: RpcFailure): void {
    if (this.#end !== undefined) return;
    this.#end = kind === "fenced" ? "fenced" : "refused";
    const lost = { events: 0, messages: 0 };
    for (const producer of [...this.#left, this.live]) {
      const { events, messages } = this.#spool.dropProducer(producer);
      lost.events += events;
      lost.messages += messages;
    }
    this.#file?.changed();
    this.report({ kind, ...reasonOf(failure), ...lost });
    this.#resolveFlushes();
    this.ending.abort(failure);
    this.run.abort(failure);
    this.#setSignals();
  }

  /**
   * Takes no more records; waiting ones stay. A stream with every record settled ends normally
   * (stream.ts): a call that is cut is a failure in the service's log.
   */
  close(): void {
    this.#end ??= "closed";
    this.run.end();
    this.#resolveFlushes();
    const isQuiet = isEmpty(this.live) && this.#left.every(isEmpty);
    if (!isQuiet || this.activity !== "streaming") this.ending.abort();
    this.#setSignals();
  }

  /** A record for a writer that has ended; that it was fenced or refused is already reported. */
  #countLate(stream: "events" | "messages"): void {
    this.#spool.count(stream, "dropped");
    if (this.#end === "closed" && !this.#hasReportedClosed) this.report({ kind: "closed" });
    this.#hasReportedClosed = true;
  }

  /** Resolves to true when all records given so far are settled, or to false when it is late. */
  async settledSoFar(late: Promise<void>): Promise<boolean> {
    const { events, messages } = this.live;
    const { promise, resolve } = deferred<void>();
    const mark = { events: events.lastNumber, messages: messages.lastNumber, resolve };
    this.#flushes.push(mark);
    this.#resolveFlushes();
    this.#setSignals();
    await Promise.race([promise, late]);
    this.#flushes = this.#flushes.filter((one) => one !== mark);
    return this.#isSettled(mark);
  }

  /** True: a caller, or a user message behind a derived one, waits for an unsettled event. */
  wantsFlush(producer: Producer): boolean {
    const isQuestionDeferred =
      producer.questions.length > 0 && sendableMessage(producer) === undefined;
    if (producer.isLeft || isQuestionDeferred) return true;
    return this.#flushes.some(({ events }) => events >= producer.events.frontNumber);
  }

  /** Resolves when the file, if any, has the current state of every producer. */
  async producersWritten(): Promise<void> {
    await this.#file?.producersWritten();
  }

  reportRefused(stream: "events" | "messages", { reason, message }: Reason, count = 1): void {
    this.report({ kind: "refused", stream, count, reason, message });
  }

  report(problem: WriterProblem): void {
    const onProblem = this.#onProblem;
    if (onProblem === undefined) return;
    // An error in the callback must not disturb the agent's run either.
    const call = async (): Promise<unknown> => onProblem(problem);
    queueMicrotask(() => void call().catch(() => undefined));
  }

  #onSettled(): void {
    const gap = this.#spool.takeGap();
    if (gap !== undefined) this.#markGap(gap);
    this.#file?.changed();
    this.#resolveFlushes();
    this.#setSignals();
  }

  #markGap(gap: DropGap): void {
    this.#isDropping = false;
    const { events, messages, sinceMicros } = gap;
    const since = new Date(msOf(sinceMicros)).toISOString();
    this.#spool.addMark(this.live, gapMark(gap), this.clock.nowMicros());
    this.report({ kind: "dropped", events, messages, since });
  }

  #isSettled({ events, messages }: Pick<FlushMark, "events" | "messages">): boolean {
    const { live } = this;
    const isPast = events < live.events.frontNumber && messages < live.messages.frontNumber;
    return isPast && this.#left.every(isEmpty);
  }

  #resolveFlushes(): void {
    for (const mark of this.#flushes) {
      if (this.#end !== undefined || this.#isSettled(mark)) mark.resolve();
    }
  }

  #setSignals(): void {
    this.eventSignal.set();
    this.messageSignal.set();
  }
}

interface Reason {
  readonly reason: string;
  readonly message: string;
}

export function reasonOf({ reason, code, message }: RpcFailure): Reason {
  return { reason: reason ?? code, message };
}

/** A wait of a loop. A set signal stays set for the next waiter, so no event is missed. */
class Signal {
  #isSet = false;
  #waiting: (() => void) | undefined;

  set(): void {
    this.#isSet = true;
    this.#waiting?.();
  }

  /** Resolves when the signal is set, or after `timeoutMs`. One loop waits on one signal. */
  async wait(timeoutMs?: number): Promise<void> {
    if (!this.#isSet) {
      const { promise, resolve } = deferred<void>();
      const timer = timeoutMs === undefined ? undefined : setTimeout(resolve, timeoutMs);
      this.#waiting = resolve;
      await promise;
      this.#waiting = undefined;
      clearTimeout(timer);
    }
    this.#isSet = false;
  }
}

/** Two processes that start in the same millisecond must not share an epoch. */
const RANDOM_BITS = 20n;

/**
 * The epoch that a writer proposes: the time, and twenty random bits below it. With 0, for which
 * the service assigns the highest epoch plus 1, a late, unanswered call would take an epoch above
 * ours and replace the writer; with a fixed number it does no harm.
 *
 * A later process has a later time, so it fences the earlier one. When clocks disagree, the service
 * answers the first Open with STALE_EPOCH, and only then the writer asks for the highest plus 1.
 * Below 2^63 until the year 2248.
 */
export function proposedEpoch(clock: Clock): bigint {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  const low = BigInt(random) & ((1n << RANDOM_BITS) - 1n);
  return ((clock.nowMicros() / 1_000n) << RANDOM_BITS) | low;
}
