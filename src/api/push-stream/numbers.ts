/**
 * The progress of one push stream, as counts from its first event:
 *
 *   1 ………… committed ………… handed over ………… settled ………… grouped ………… received
 *          on disk       with ingest     rows, or refused   the open group,   waits for redaction,
 *                                                           and what was      where there is one
 *                                                           refused meanwhile
 *
 * Every event has its place in this line, also a refused one: a refused event is committed with the
 * rows around it, in a range of numbers that states how many of its numbers have no row. So the
 * committed events are always a prefix. The client is told of that prefix and continues after it
 * when the connection breaks.
 */
import type { OpenedStream } from "../../store/streams.ts";

/** The highest number of an event: PostgreSQL's bigint. */
export const CLIENT_SEQ_MAX = 2n ** 63n - 1n;

/** The events of one hand-over. */
export interface Handover {
  readonly firstClientSeq: bigint;
  readonly lastClientSeq: bigint;
  readonly refused: number;
  readonly events: number;
  readonly payloadBytes: number;
}

/**
 * The effect of an event on the open group: the event stands alone, began a group, or joined it.
 */
export type GroupStep = "none" | "began" | "joined";

interface Part {
  events: number;
  refused: number;
  payloadBytes: number;
}

export class StreamNumbers {
  /** The last number before this stream. */
  readonly #base: bigint;
  #received = 0;
  #handed = 0;
  #committed = 0;
  /** The events that are settled and not handed over. */
  #settled: Part = nothing();
  /** The events from the first one of the open group. */
  #open: Part = nothing();
  #unacknowledgedBytes = 0;
  #heldBytes = 0;
  #refusedEvents = 0;

  constructor({ lastClientSeq }: Pick<OpenedStream, "lastClientSeq">) {
    this.#base = lastClientSeq;
  }

  /** The number of the event that comes next. */
  get next(): bigint {
    return this.#base + BigInt(this.#received + 1);
  }

  get lastCommitted(): bigint {
    return this.#base + BigInt(this.#committed);
  }

  /** The number of events received, with refused ones. */
  get received(): number {
    return this.#received;
  }

  get refusedEvents(): number {
    return this.#refusedEvents;
  }

  get isCommitted(): boolean {
    return this.#committed === this.#received;
  }

  get unacknowledgedEvents(): number {
    return this.#received - this.#committed;
  }

  /** Payload bytes of everything that is not committed. */
  get unacknowledgedBytes(): number {
    return this.#unacknowledgedBytes;
  }

  /** Payload bytes of the open group, with the events that were refused meanwhile. */
  get openBytes(): number {
    return this.#open.payloadBytes;
  }

  /** Payload bytes of the events that are neither accepted nor refused. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  get settledBytes(): number {
    return this.#settled.payloadBytes;
  }

  /**
   * Counts an event as received. Call accepted() or refused() for it later, in the order of these
   * calls.
   */
  receive(payloadBytes: number): void {
    this.#received += 1;
    this.#unacknowledgedBytes += payloadBytes;
    this.#heldBytes += payloadBytes;
  }

  /** Counts an event as accepted; `step` tells its effect on the open group. */
  accepted(payloadBytes: number, step: GroupStep): void {
    if (step === "began") this.groupClosed();
    this.#heldBytes -= payloadBytes;
    const part = this.#open;
    part.events += 1;
    part.payloadBytes += payloadBytes;
    if (step === "none") this.groupClosed();
  }

  refused(payloadBytes: number): void {
    this.#heldBytes -= payloadBytes;
    this.#refusedEvents += 1;
    const part = this.#open.events > 0 ? this.#open : this.#settled;
    part.events += 1;
    part.refused += 1;
    part.payloadBytes += payloadBytes;
  }

  /** Counts the open group as settled, with the events refused meanwhile. */
  groupClosed(): void {
    const { events, refused, payloadBytes } = this.#open;
    if (events === 0) return;
    this.#settled.events += events;
    this.#settled.refused += refused;
    this.#settled.payloadBytes += payloadBytes;
    this.#open = nothing();
  }

  /** Takes all settled events that were not handed over; undefined when there are none. */
  take(): Handover | undefined {
    const part = this.#settled;
    if (part.events === 0) return undefined;
    const firstClientSeq = this.#base + BigInt(this.#handed + 1);
    this.#handed += part.events;
    this.#settled = nothing();
    return { firstClientSeq, lastClientSeq: this.#base + BigInt(this.#handed), ...part };
  }

  /** Call this in the order of `take`. */
  committed({ events, payloadBytes }: Handover): void {
    this.#committed += events;
    this.#unacknowledgedBytes -= payloadBytes;
  }
}

function nothing(): Part {
  return { events: 0, refused: 0, payloadBytes: 0 };
}
