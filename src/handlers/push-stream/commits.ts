/**
 * The rows of one push stream on their way to disk. While one push is under way, rows are gathered
 * for the next one, so a stream commits as often as the disk allows. A second push follows the
 * first only when many rows wait, or when a caller needs them in ingest at once. After a rejected
 * push, ingest stores no later one of the stream, so the first rejection ends it.
 *
 * The progress of the stream, as counts from its first event:
 *
 *   1 ………… committed ………… handed over ………… settled ………… received
 *          on disk       with ingest     rows, or refused   the open group, and events
 *                                                           that were refused meanwhile
 *
 * Every event has its place in this line, also a refused one: a refused event is committed with the
 * rows around it, in a range of numbers that states how many of its numbers have no row. So the
 * committed events are always a prefix. The client gets that prefix and continues after it
 * when the connection breaks.
 */
import { type ErrorReason, ServiceError } from "@session-ledger/base/errors";
import type { Ingest } from "../../ingest/ingest.ts";
import type { Acknowledged } from "../../ingest/queue.ts";
import { RangeGap } from "../../ingest/refusal.ts";
import type { Metrics } from "../../observability/metrics.ts";
import { committedEventsLost } from "../../store/failure.ts";
import { type Push, storedBytesOf } from "../../store/rows.ts";
import type { OpenedStream, StreamOpening } from "../../store/streams.ts";
import { countRenamed } from "../push.ts";
import { type BuiltRows, type GroupStep, lastSeqOfRows, type RowBuilder } from "./row-builder.ts";

/** At this number of rows, or of payload bytes, the rows do not wait for the push before them. */
export const HANDOVER_ROWS = 256;
const HANDOVER_BYTES = 256 * 1024;
const IN_FLIGHT_MAX = 2;

export interface CommitParts {
  readonly ingest: Pick<Ingest, "push">;
  /** Whether committed events of the stream are lost, and after which number. */
  readonly lostAfter: (opening: StreamOpening) => Promise<bigint | undefined>;
  readonly metrics: CommitMetrics;
}

/** Counted once a hand-over: once an event would be too often. */
export type CommitMetrics = Pick<
  Metrics,
  "pushStreamEvents" | "pushStreamRefused" | "pushStreamRows" | "pushStreamBytes" | "aguiRenamed"
>;

export interface CommittedStream {
  readonly sessionId: string;
  readonly opened: OpenedStream;
  /** The id of the caller who pushes. */
  readonly actor: string | undefined;
  /** Called after each commit; with an error, the stream commits nothing more. */
  readonly onSettle: (error: ServiceError | undefined) => void;
}

/** The committed part of a stream, for its caller. */
export interface CommittedSeqs {
  readonly lastClientSeq: bigint;
  readonly firstSeq: bigint;
  readonly lastSeq: bigint;
}

/** The events of one hand-over. */
interface Handover extends Readonly<EventCounts> {
  readonly firstClientSeq: bigint;
  readonly lastClientSeq: bigint;
}

interface EventCounts {
  events: number;
  refused: number;
  payloadBytes: number;
}

export class StreamCommits {
  readonly #parts: CommitParts;
  readonly #stream: CommittedStream;
  readonly #rows: Pick<RowBuilder, "take" | "rowsWaiting">;
  /** The last number before this stream. */
  readonly #base: bigint;
  /** The number of events received, with refused ones. */
  received = 0;
  #handedOver = 0;
  #committed = 0;
  /** The events that are settled and not handed over. */
  #settled: EventCounts = noEvents();
  /** The events from the first one of the open group. */
  #open: EventCounts = noEvents();
  /** Payload bytes of everything that is not committed. */
  unacknowledgedBytes = 0;
  refusedEvents = 0;
  #inFlight = 0;
  /** The seqs of the first and the last event that this stream has committed; 0 before the first. */
  #firstSeq = 0n;
  #lastSeq = 0n;
  /** The number of rows handed over so far. */
  rowsHandedOver = 0;
  /** The last number that the caller knows of. */
  #acknowledgedSeq: bigint;
  #isOwed = false;

  constructor(
    parts: CommitParts,
    stream: CommittedStream,
    rows: Pick<RowBuilder, "take" | "rowsWaiting">,
  ) {
    this.#parts = parts;
    this.#stream = stream;
    this.#rows = rows;
    this.#base = stream.opened.lastClientSeq;
    this.#acknowledgedSeq = this.#base;
  }

  /** The number of the event that comes next. */
  get next(): bigint {
    return this.#base + BigInt(this.received + 1);
  }

  get #lastCommitted(): bigint {
    return this.#base + BigInt(this.#committed);
  }

  get isCommitted(): boolean {
    return this.#committed === this.received;
  }

  get unacknowledgedEvents(): number {
    return this.received - this.#committed;
  }

  /** Payload bytes of the open group, with the events that were refused meanwhile. */
  get openBytes(): number {
    return this.#open.payloadBytes;
  }

  /** Counts an event as accepted; `step` tells its effect on the open group. */
  addAccepted(payloadBytes: number, step: GroupStep): void {
    this.#receive(payloadBytes);
    if (step === "began") this.closeGroup();
    const part = this.#open;
    part.events += 1;
    part.payloadBytes += payloadBytes;
    if (step === "none") this.closeGroup();
  }

  addRefused(payloadBytes: number): void {
    this.#receive(payloadBytes);
    this.refusedEvents += 1;
    const part = this.#open.events > 0 ? this.#open : this.#settled;
    part.events += 1;
    part.refused += 1;
    part.payloadBytes += payloadBytes;
  }

  #receive(payloadBytes: number): void {
    this.received += 1;
    this.unacknowledgedBytes += payloadBytes;
  }

  /** Counts the open group as settled, with the events refused meanwhile. */
  closeGroup(): void {
    const { events, refused, payloadBytes } = this.#open;
    if (events === 0) return;
    this.#settled.events += events;
    this.#settled.refused += refused;
    this.#settled.payloadBytes += payloadBytes;
    this.#open = noEvents();
  }

  /** The caller waits for an acknowledgement, even one with no new number. */
  owe(): void {
    this.#isOwed = true;
  }

  /** Of a new number, or an owed one once no push is under way that would bring a newer number. */
  get acknowledgement(): CommittedSeqs | undefined {
    const lastClientSeq = this.#lastCommitted;
    const isDue = lastClientSeq > this.#acknowledgedSeq || (this.#isOwed && this.isCommitted);
    return isDue ? { lastClientSeq, firstSeq: this.#firstSeq, lastSeq: this.#lastSeq } : undefined;
  }

  markAcknowledged({ lastClientSeq }: CommittedSeqs): void {
    this.#acknowledgedSeq = lastClientSeq;
    this.#isOwed = false;
  }

  /** Hands over the settled events when it is time; with `now`, at once. */
  handOver({ now }: { readonly now: boolean } = { now: false }): void {
    if (!now && !this.#isTime()) return;
    const handover = this.#take();
    if (handover === undefined) return;
    const { sessionId, opened, actor } = this.#stream;
    const { firstClientSeq, lastClientSeq, refused } = handover;
    const { epoch, stream } = opened;
    const built = this.#rows.take();
    const { rows } = built;
    this.#inFlight += 1;
    this.rowsHandedOver += rows.length;
    const { metrics } = this.#parts;
    metrics.pushStreamEvents.inc(handover.events);
    if (refused > 0) metrics.pushStreamRefused.inc(refused);
    metrics.pushStreamRows.inc(rows.length);
    metrics.pushStreamBytes.inc(handover.payloadBytes);
    const push = {
      sessionId,
      stream: "events",
      key: undefined,
      digest: undefined,
      epoch: undefined,
      actor,
      range: { epoch, stream, firstClientSeq, lastClientSeq, refused },
      rows,
      bytes: storedBytesOf(rows),
    } as const;
    void this.#commit(handover, push, built);
  }

  async #commit(handover: Handover, push: Push, built: BuiltRows): Promise<void> {
    let failure: ServiceError | undefined;
    try {
      const acknowledged = await this.#parts.ingest.push(push, staysWanted);
      this.#committed += handover.events;
      this.unacknowledgedBytes -= handover.payloadBytes;
      this.#onCommit(acknowledged, built);
    } catch (error) {
      failure = await this.#failureOf(handover, ServiceError.from(error));
    }
    this.#inFlight -= 1;
    this.#parts.metrics.pushStreamBytes.dec(handover.payloadBytes);
    this.#stream.onSettle(failure);
  }

  /** A refusal right after the last committed push may mean that committed events are lost. */
  async #failureOf({ firstClientSeq }: Handover, failure: ServiceError): Promise<ServiceError> {
    const lastClientSeq = this.#lastCommitted;
    const mayBeLoss = failure instanceof RangeGap || MAY_BE_LOSS.has(failure.reason);
    if (!mayBeLoss || firstClientSeq !== lastClientSeq + 1n) return failure;
    const { sessionId, opened } = this.#stream;
    const lost = await this.#parts
      .lostAfter({ sessionId, opened, lastClientSeq })
      .catch(() => undefined);
    return lost === undefined ? failure : committedEventsLost(lost + 1n);
  }

  #isTime(): boolean {
    if (this.#inFlight === 0) return true;
    const isMuch =
      this.#rows.rowsWaiting >= HANDOVER_ROWS || this.#settled.payloadBytes >= HANDOVER_BYTES;
    return isMuch && this.#inFlight < IN_FLIGHT_MAX;
  }

  #onCommit({ rows, deduplicated }: Acknowledged, built: BuiltRows): void {
    // After a lost answer only the first row is known.
    const [first] = rows;
    if (first === undefined) return;
    if (this.#firstSeq === 0n) this.#firstSeq = first.seq;
    this.#lastSeq = lastSeqOfRows(built, first.seq);
    if (!deduplicated) countRenamed(this.#parts.metrics, built.renamed);
  }

  /** Takes all settled events that were not handed over; undefined without any. */
  #take(): Handover | undefined {
    const part = this.#settled;
    if (part.events === 0) return undefined;
    const firstClientSeq = this.#base + BigInt(this.#handedOver + 1);
    this.#handedOver += part.events;
    this.#settled = noEvents();
    return { firstClientSeq, lastClientSeq: this.#base + BigInt(this.#handedOver), ...part };
  }
}

const MAY_BE_LOSS: ReadonlySet<ErrorReason> = new Set(["STREAM_REPLACED", "SESSION_NOT_FOUND"]);

/** Received events are stored even after the caller left: the caller need not send them again. */
function staysWanted(): boolean {
  return false;
}

function noEvents(): EventCounts {
  return { events: 0, refused: 0, payloadBytes: 0 };
}
