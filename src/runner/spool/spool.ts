/**
 * What the agent has said and the service has not acknowledged, in memory, within a bound of bytes.
 * Pure: it decides what is kept and counts what is not, and knows neither network nor file nor time.
 *
 *   bytesMax
 *   ├──────────── events, at most 7/8 ────────────┤── reserve ──┤
 *   ├──────────── messages: whatever is free, the reserve always ┤
 *
 * Past the bound the new record is dropped and counted, never an older one: what was accepted stays,
 * and the gap is at one place. Once a record was dropped, events are dropped until a quarter of the
 * room is free again, so that a gap is one gap and not a thousand; then `takeGap` says what is missing,
 * for the writer to put into the stream at that place.
 *
 * A lane is what is numbered together: the records of one writer's life, under one epoch. There is one
 * for this writer, and before it one for each that left records in the file.
 *
 *   offered = committed + refused + dropped + pending       for events, and for messages
 *
 * where what was found in the file counts as offered. Only what fits an empty spool may be offered.
 */
import type { Sender } from "../rows.ts";
import { SpoolQueue } from "./queue.ts";

export interface EventRecord {
  /** JSON of one AG-UI event, or what the caller took for it. */
  readonly payload: string;
  readonly atMicros: bigint;
  readonly bytes: number;
  /** Written by the writer itself (the mark of a gap), so it counts nowhere. */
  readonly isMark: boolean;
}

export interface MessageRecord {
  readonly eventType: string;
  readonly payload: string;
  readonly key: string;
  readonly sentAtMicros: bigint | undefined;
  readonly sender: Sender | undefined;
  readonly bytes: number;
}

export interface Lane {
  /** Its number in the file; 0: there is none. */
  generation: number;
  /** Names the lane in the keys of unary pushes. */
  readonly start: string;
  /** Left by a process that ended: nothing is added, and it is let go of when it is empty. */
  readonly isLeft: boolean;
  /** Undefined until the service has said it, or the caller. */
  epoch: bigint | undefined;
  /**
   * What it is asked for before that; undefined: the highest of the session plus 1. Of a left lane it
   * is all there is to tell that somebody has taken over since.
   */
  proposed: bigint | undefined;
  /** The service knows record n as number `base + n` of the epoch; undefined until a stream was opened. */
  base: bigint | undefined;
  /** Refusals of the epoch, as the service counts them, that are counted here too. */
  refusals: bigint;
  /** The highest event that a stream was given; undefined of a left lane, of which nobody knows. */
  sent: bigint | undefined;
  /** Numbers of the events of the unary row that is under way, so that it can be sent again as it was. */
  cut: Cut | undefined;
  /** Of records that are still here: those that the service has refused, and that were told. */
  readonly refused: Set<bigint>;
  readonly events: SpoolQueue<EventRecord>;
  readonly messages: SpoolQueue<MessageRecord>;
}

export interface Cut {
  readonly first: bigint;
  readonly last: bigint;
}

/** What was dropped since the stream last said so. */
export interface Gap {
  readonly events: number;
  readonly messages: number;
  readonly sinceMicros: bigint;
}

/** Records of one kind, counted. */
export interface Counts {
  /** Taken into the spool, also those that were found in the file; whatever became of them then. */
  readonly accepted: number;
  readonly committed: number;
  /** Not acceptable: to the service, or already here (and then never accepted). Never stored. */
  readonly refused: number;
  /** No room, given after the end, or given up because another writer took over or the session is gone. */
  readonly dropped: number;
  /** Accepted, and their fate is not known. */
  readonly pending: number;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** A record costs so much more than its text: the object, its numbers, its place in the queue. */
const RECORD_BYTES = 128;
/** A UTF-16 unit has at most so many bytes of UTF-8. */
const UNIT_BYTES_MAX = 3;
const RESERVE_PART = 1 / 8;
const REOPEN_PART = 3 / 4;

export class Spool {
  readonly #bytesMax: number;
  readonly #eventBytesMax: number;
  #eventBytes = 0;
  #messageBytes = 0;
  #isClosed = false;
  #gap: Mutable<Gap> | undefined;
  readonly #events = newCounts();
  readonly #messages = newCounts();

  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
    this.#eventBytesMax = Math.floor(bytesMax * (1 - RESERVE_PART));
  }

  get events(): Counts {
    return { ...this.#events };
  }

  get messages(): Counts {
    return { ...this.#messages };
  }

  get pendingBytes(): number {
    return this.#eventBytes + this.#messageBytes;
  }

  /** Whether a text could be kept if nothing else were. What cannot would close the spool for good. */
  canHold(kind: "events" | "messages", payload: string): boolean {
    const bytesMax = kind === "events" ? this.#eventBytesMax : this.#bytesMax;
    const textBytesMax = bytesMax - RECORD_BYTES;
    return (
      payload.length * UNIT_BYTES_MAX <= textBytesMax || Buffer.byteLength(payload) <= textBytesMax
    );
  }

  /** False: dropped, and counted. */
  offerEvent(lane: Lane, payload: string, atMicros: bigint): boolean {
    const record = eventRecord(payload, atMicros, false);
    const bytes = record.bytes + RECORD_BYTES;
    if (this.#isClosed || !this.#hasRoomForEvent(bytes)) {
      this.#isClosed = true;
      this.#drop("events", atMicros);
      return false;
    }
    this.#events.accepted += 1;
    this.#events.pending += 1;
    this.#eventBytes += bytes;
    lane.events.push(record);
    return true;
  }

  /** False: dropped, and counted. */
  offerMessage(lane: Lane, message: Omit<MessageRecord, "bytes">, atMicros: bigint): boolean {
    const record = messageRecord(message);
    const bytes = record.bytes + RECORD_BYTES;
    if (this.pendingBytes + bytes > this.#bytesMax) {
      this.#drop("messages", atMicros);
      return false;
    }
    this.#messages.accepted += 1;
    this.#messages.pending += 1;
    this.#messageBytes += bytes;
    lane.messages.push(record);
    return true;
  }

  /** A mark of the writer's own: counted nowhere, and never dropped; there is one a gap. */
  addMark(lane: Lane, payload: string, atMicros: bigint): void {
    const record = eventRecord(payload, atMicros, true);
    this.#eventBytes += record.bytes + RECORD_BYTES;
    lane.events.push(record);
  }

  /** Counts the records of a lane that was filled from a file. They may pass the bound. */
  adopt({ events, messages }: Lane): void {
    for (let at = events.frontNumber; at <= events.lastNumber; at += 1n) {
      const record = events.at(at);
      if (record === undefined) continue;
      this.#eventBytes += record.bytes + RECORD_BYTES;
      if (record.isMark) continue;
      this.#events.accepted += 1;
      this.#events.pending += 1;
    }
    for (let at = messages.frontNumber; at <= messages.lastNumber; at += 1n) {
      this.#messageBytes += (messages.at(at)?.bytes ?? 0) + RECORD_BYTES;
      this.#messages.accepted += 1;
      this.#messages.pending += 1;
    }
  }

  /** Something that never came as far as the spool. */
  countRefused(kind: "events" | "messages"): void {
    this.#countsOf(kind).refused += 1;
  }

  /** Everything up to `number` has met its fate: `refused` of them were refused, the rest committed. */
  settleEvents(lane: Lane, number: bigint, { refused }: { readonly refused: number }): void {
    const counted = this.#takeEvents(lane, number);
    const refusedHere = Math.min(refused, counted);
    this.#events.refused += refusedHere;
    this.#events.committed += counted - refusedHere;
    this.#reopen();
  }

  settleMessage(lane: Lane, fate: "committed" | "refused" | "dropped"): void {
    const record = lane.messages.takeUpTo(lane.messages.frontNumber)[0];
    if (record === undefined) return;
    this.#messageBytes -= record.bytes + RECORD_BYTES;
    this.#messages.pending -= 1;
    this.#messages[fate] += 1;
    this.#reopen();
  }

  /** Gives up what the lane holds; returns how much that was. */
  dropLane(lane: Lane): { readonly events: number; readonly messages: number } {
    const events = this.#takeEvents(lane, lane.events.lastNumber);
    this.#events.dropped += events;
    const messages = lane.messages.length;
    while (lane.messages.length > 0) this.settleMessage(lane, "dropped");
    this.#reopen();
    return { events, messages };
  }

  /** Counts what is offered to a writer that has ended. */
  countDropped(kind: "events" | "messages"): void {
    this.#countsOf(kind).dropped += 1;
  }

  /** What was dropped, once there is room again; undefined before that, and when nothing was. */
  takeGap(): Gap | undefined {
    if (this.#gap === undefined || this.#isClosed || !this.#isRoomy()) return undefined;
    const gap = this.#gap;
    this.#gap = undefined;
    return gap;
  }

  #countsOf(kind: "events" | "messages"): Mutable<Counts> {
    return kind === "events" ? this.#events : this.#messages;
  }

  #hasRoomForEvent(bytes: number): boolean {
    return (
      this.#eventBytes + bytes <= this.#eventBytesMax && this.pendingBytes + bytes <= this.#bytesMax
    );
  }

  #isRoomy(): boolean {
    return (
      this.#eventBytes <= this.#eventBytesMax * REOPEN_PART &&
      this.pendingBytes <= this.#bytesMax * REOPEN_PART
    );
  }

  #reopen(): void {
    if (this.#isRoomy()) this.#isClosed = false;
  }

  #drop(kind: "events" | "messages", atMicros: bigint): void {
    this.countDropped(kind);
    this.#gap ??= { events: 0, messages: 0, sinceMicros: atMicros };
    this.#gap[kind] += 1;
  }

  /** Returns how many of them count. */
  #takeEvents(lane: Lane, number: bigint): number {
    let counted = 0;
    for (const record of lane.events.takeUpTo(number)) {
      this.#eventBytes -= record.bytes + RECORD_BYTES;
      if (!record.isMark) counted += 1;
    }
    this.#events.pending -= counted;
    return counted;
  }
}

/** A record as the file gives it back, too. */
export function eventRecord(payload: string, atMicros: bigint, isMark: boolean): EventRecord {
  return { payload, atMicros, bytes: Buffer.byteLength(payload), isMark };
}

export function messageRecord(message: Omit<MessageRecord, "bytes">): MessageRecord {
  return { ...message, bytes: Buffer.byteLength(message.payload) };
}

export function newLane(start: string, lane: Partial<Lane> = {}): Lane {
  return {
    generation: 0,
    start,
    isLeft: false,
    epoch: undefined,
    proposed: undefined,
    base: undefined,
    refusals: 0n,
    sent: lane.isLeft === true ? undefined : 0n,
    cut: undefined,
    refused: new Set(),
    events: new SpoolQueue<EventRecord>(),
    messages: new SpoolQueue<MessageRecord>(),
    ...lane,
  };
}

export function isEmpty({ events, messages }: Lane): boolean {
  return events.length === 0 && messages.length === 0;
}

function newCounts(): Mutable<Counts> {
  return { accepted: 0, committed: 0, refused: 0, dropped: 0, pending: 0 };
}
