/**
 * Where the events of one push stream are, as counts from the first it was sent:
 *
 *   1 ………… committed ………… handed over ………… settled ………… grouped ………… received
 *          on disk       with ingest     rows, or refused   the open group,   waits for redaction,
 *                                                           and what was      where there is one
 *                                                           refused meanwhile
 *
 * An event has its place in this line whatever becomes of it: a refused one is committed with the rows
 * around it, in a range of numbers that says how many of them have no row. So what is on disk, what
 * the client is told and what it sends again after a break are always one prefix.
 */
import type { OpenedStream } from "../../store/streams.ts";

/** The highest number of an event: PostgreSQL's bigint. */
export const CLIENT_SEQ_MAX = 2n ** 63n - 1n;

/** What is handed over at once. */
export interface Handover {
  readonly firstClientSeq: bigint;
  readonly lastClientSeq: bigint;
  readonly refused: number;
  readonly events: number;
  readonly payloadBytes: number;
}

/** What an event did to the open group: it has nothing to do with one, began one, or joined it. */
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
  /** Settled and not handed over. */
  #settled: Part = nothing();
  /** From the first event of the open group on. */
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

  /** Events that came, refused ones too. */
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

  /** Of the open group, and of what was refused meanwhile. */
  get openBytes(): number {
    return this.#open.payloadBytes;
  }

  /** Of what is neither accepted nor refused. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  get settledBytes(): number {
    return this.#settled.payloadBytes;
  }

  /** An event came; what becomes of it is told in the order of this. */
  receive(payloadBytes: number): void {
    this.#received += 1;
    this.#unacknowledgedBytes += payloadBytes;
    this.#heldBytes += payloadBytes;
  }

  /** An event was accepted, and the group is now as `step` says. */
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

  /** Everything that was accepted or refused is settled. */
  groupClosed(): void {
    const { events, refused, payloadBytes } = this.#open;
    if (events === 0) return;
    this.#settled.events += events;
    this.#settled.refused += refused;
    this.#settled.payloadBytes += payloadBytes;
    this.#open = nothing();
  }

  /** All that is settled and was not handed over; undefined when there is nothing. */
  take(): Handover | undefined {
    const part = this.#settled;
    if (part.events === 0) return undefined;
    const firstClientSeq = this.#base + BigInt(this.#handed + 1);
    this.#handed += part.events;
    this.#settled = nothing();
    return { firstClientSeq, lastClientSeq: this.#base + BigInt(this.#handed), ...part };
  }

  /** In the order of `take`. */
  committed({ events, payloadBytes }: Handover): void {
    this.#committed += events;
    this.#unacknowledgedBytes -= payloadBytes;
  }
}

function nothing(): Part {
  return { events: 0, refused: 0, payloadBytes: 0 };
}
