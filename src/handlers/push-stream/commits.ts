/**
 * The rows of one push stream on their way to disk. While one push is under way, rows are gathered
 * for the next one, so a stream commits as often as the disk allows. A second push follows the
 * first only when many rows wait, or when a caller needs them in ingest at once. After a rejected
 * push, ingest stores no later one of the stream, so the first rejection ends it.
 */
import type { ValidatedEvent as AguiRow } from "@session-ledger/agui/split-event";
import { type ErrorReason, ServiceError } from "@session-ledger/base/errors";
import type { CompressedRow } from "@session-ledger/compressor/compressor";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import type { Ingest } from "../../ingest/ingest.ts";
import type { Acknowledged } from "../../ingest/queue.ts";
import { RangeGap } from "../../ingest/refusal.ts";
import { type NewRow, type Push, storedBytesOf } from "../../store/rows.ts";
import { committedEventsLost } from "../../store/failure.ts";
import type { OpenedStream, StreamOpening } from "../../store/streams.ts";
import { newEventRow } from "../new-row.ts";
import type { FragmentEvent } from "./accept-event.ts";
import type { StreamMetrics } from "./stream-metrics.ts";

/** At this number of rows, or of payload bytes, the rows do not wait for the push before them. */
export const HANDOVER_ROWS = 256;
const HANDOVER_BYTES = 256 * 1024;
const IN_FLIGHT_MAX = 2;

export interface CommitParts {
  readonly ingest: Pick<Ingest, "push">;
  /** Whether committed events of the stream are lost, and after which number. */
  readonly lostAfter: (opening: StreamOpening) => Promise<bigint | undefined>;
  readonly streamMetrics: StreamMetrics;
}

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

/** Accepts rows, and counts the events that they stand for. */
export interface RowSink {
  readonly numbers: StreamNumbers;
  addMerged(row: CompressedRow<FragmentEvent>): void;
  add(row: AguiRow): void;
}

/** Rows for one push. */
export class GatheredRows {
  readonly rows: NewRow[] = [];
  /** Those in which a field was renamed. */
  readonly renamed: AguiRow[] = [];
  #events = 0;

  addMerged(row: CompressedRow<FragmentEvent>): void {
    const { first: _, fragments, ...event } = row;
    const index = fragments === undefined ? undefined : encodeFragments(fragments);
    this.rows.push(newEventRow({ ...event, conformant: true, mark: undefined }, index));
    this.#events += row.eventCount;
  }

  add(row: AguiRow): void {
    this.rows.push(newEventRow(row, undefined));
    if (row.renamed !== undefined) this.renamed.push(row);
    this.#events += row.eventCount;
  }

  /** The rows of one push have consecutive numbers. */
  lastSeq(firstSeq: bigint): bigint {
    return firstSeq + BigInt(this.#events) - 1n;
  }
}

export class StreamCommits implements RowSink {
  readonly numbers: StreamNumbers;
  readonly #parts: CommitParts;
  readonly #stream: CommittedStream;
  #gathered = new GatheredRows();
  #inFlight = 0;
  /** The seqs of the first and the last event that this stream has committed; 0 before the first. */
  #firstSeq = 0n;
  #lastSeq = 0n;
  /** The number of rows handed over so far. */
  rowsHandedOver = 0;
  /** The last number that the caller knows of. */
  #acknowledgedSeq: bigint;
  #isOwed = false;

  constructor(parts: CommitParts, stream: CommittedStream) {
    this.#parts = parts;
    this.#stream = stream;
    this.numbers = new StreamNumbers(stream.opened);
    this.#acknowledgedSeq = stream.opened.lastClientSeq;
  }

  /** The caller waits for an acknowledgement, even one with no new number. */
  owe(): void {
    this.#isOwed = true;
  }

  /** Of a new number, or an owed one once no push is under way that would bring a newer number. */
  get acknowledgement(): CommittedSeqs | undefined {
    const { lastCommitted: lastClientSeq, isCommitted } = this.numbers;
    const isDue = lastClientSeq > this.#acknowledgedSeq || (this.#isOwed && isCommitted);
    return isDue ? { lastClientSeq, firstSeq: this.#firstSeq, lastSeq: this.#lastSeq } : undefined;
  }

  markAcknowledged({ lastClientSeq }: CommittedSeqs): void {
    this.#acknowledgedSeq = lastClientSeq;
    this.#isOwed = false;
  }

  get rowsWaiting(): number {
    return this.#gathered.rows.length;
  }

  addMerged(row: CompressedRow<FragmentEvent>): void {
    this.#gathered.addMerged(row);
  }

  add(row: AguiRow): void {
    this.#gathered.add(row);
  }

  /** Hands over the settled events when it is time; with `now`, at once. */
  handOver({ now }: { readonly now: boolean } = { now: false }): void {
    if (!now && !this.#isTime()) return;
    const handover = this.numbers.take();
    if (handover === undefined) return;
    const { sessionId, opened, actor } = this.#stream;
    const { firstClientSeq, lastClientSeq, refused } = handover;
    const { epoch, stream } = opened;
    const gathered = this.#gathered;
    const { rows } = gathered;
    this.#gathered = new GatheredRows();
    this.#inFlight += 1;
    this.rowsHandedOver += rows.length;
    this.#parts.streamMetrics.onHandover(handover, rows.length);
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
    void this.#commit(handover, push, gathered);
  }

  async #commit(handover: Handover, push: Push, gathered: GatheredRows): Promise<void> {
    let failure: ServiceError | undefined;
    try {
      const acknowledged = await this.#parts.ingest.push(push, staysWanted);
      this.numbers.commit(handover);
      this.#onCommit(acknowledged, gathered);
    } catch (error) {
      failure = await this.#failureOf(handover, ServiceError.from(error));
    }
    this.#inFlight -= 1;
    this.#parts.streamMetrics.onSettle(handover.payloadBytes);
    this.#stream.onSettle(failure);
  }

  /** A refusal right after the last committed push may mean that committed events are lost. */
  async #failureOf({ firstClientSeq }: Handover, failure: ServiceError): Promise<ServiceError> {
    const lastClientSeq = this.numbers.lastCommitted;
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
    const isMuch = this.rowsWaiting >= HANDOVER_ROWS || this.numbers.settledBytes >= HANDOVER_BYTES;
    return isMuch && this.#inFlight < IN_FLIGHT_MAX;
  }

  #onCommit({ rows, deduplicated }: Acknowledged, gathered: GatheredRows): void {
    // After a lost answer only the first row is known.
    const [first] = rows;
    if (first === undefined) return;
    if (this.#firstSeq === 0n) this.#firstSeq = first.seq;
    this.#lastSeq = gathered.lastSeq(first.seq);
    if (!deduplicated) this.#parts.streamMetrics.onRename(gathered.renamed);
  }
}

const MAY_BE_LOSS: ReadonlySet<ErrorReason> = new Set(["STREAM_REPLACED", "SESSION_NOT_FOUND"]);

/** Received events are stored even after the caller left: the caller need not send them again. */
function staysWanted(): boolean {
  return false;
}

/**
 * The progress of one push stream, as counts from its first event:
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

/** The events of one hand-over. */
export interface Handover {
  readonly firstClientSeq: bigint;
  readonly lastClientSeq: bigint;
  readonly refused: number;
  readonly events: number;
  readonly payloadBytes: number;
}

/** An event stands alone, began a group, or joined it. */
export type GroupStep = "none" | "began" | "joined";

interface EventCounts {
  events: number;
  refused: number;
  payloadBytes: number;
}

export class StreamNumbers {
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

  constructor({ lastClientSeq }: Pick<OpenedStream, "lastClientSeq">) {
    this.#base = lastClientSeq;
  }

  /** The number of the event that comes next. */
  get next(): bigint {
    return this.#base + BigInt(this.received + 1);
  }

  get lastCommitted(): bigint {
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

  get settledBytes(): number {
    return this.#settled.payloadBytes;
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

  /** Takes all settled events that were not handed over; undefined without any. */
  take(): Handover | undefined {
    const part = this.#settled;
    if (part.events === 0) return undefined;
    const firstClientSeq = this.#base + BigInt(this.#handedOver + 1);
    this.#handedOver += part.events;
    this.#settled = noEvents();
    return { firstClientSeq, lastClientSeq: this.#base + BigInt(this.#handedOver), ...part };
  }

  /** Call this in the order of `take`. */
  commit({ events, payloadBytes }: Handover): void {
    this.#committed += events;
    this.unacknowledgedBytes -= payloadBytes;
  }
}

function noEvents(): EventCounts {
  return { events: 0, refused: 0, payloadBytes: 0 };
}
