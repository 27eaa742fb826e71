/**
 * The records that the service has not acknowledged, in memory, within a bound of bytes. The spool
 * is pure: it decides which records stay and counts the others, without network, file or clock.
 *
 *   bytesMax
 *   ├──────────── events, at most 7/8 ────────────┤── reserve ──┤
 *   ├──────────── messages: all free room, the reserve always ───┤
 *
 * Above the bound the new record is dropped and counted, and never an older one: accepted records
 * stay, and the gap is at one place. After a drop, further events are dropped until a quarter of
 * the room is free again, so that one gap results and not a thousand. Then `takeGap` returns the
 * counts, and the writer marks the gap in the stream.
 *
 * A producer is one writer process with one epoch, and numbers its own records. This writer is one
 * producer; each earlier writer with records in the file is another one before it.
 *
 *   offered = committed + refused + dropped + pending       for events, and for messages
 *
 * Records from the file count as offered. A record that would not fit an empty spool may not be
 * offered.
 */
import { msOf } from "@session-ledger/base/clock";
import type { Sender } from "../rows.ts";
import { SpoolQueue } from "./queue.ts";

export interface EventRecord {
  /** JSON of one AG-UI event, or a text that the caller took for it. */
  readonly payload: string;
  readonly atMicros: bigint;
  readonly bytes: number;
  /** A mark of the writer itself (for a gap), so it is not counted. */
  readonly isMark: boolean;
}

export interface MessageRecord {
  readonly eventType: string;
  readonly payload: string;
  readonly key: string;
  readonly sentAtMicros: bigint | undefined;
  readonly sender: Sender | undefined;
  /** Of a derived message: the number of the event that completed it, which is settled before it. */
  readonly after?: bigint | undefined;
  readonly bytes: number;
}

export interface Producer {
  /** Its number in the file; 0: it is not in the file. */
  generation: number;
  /** True for the producer of an ended process: nothing is added, and when empty it is dropped. */
  readonly isLeft: boolean;
  /** Undefined until the service, or the caller, has set it. */
  epoch: bigint | undefined;
  /** The epoch to ask for before that; undefined: the highest plus 1. */
  proposed: bigint | undefined;
  /** The service knows record n as `base + n`; undefined until a stream was opened. */
  base: bigint | undefined;
  /** The refusals of the epoch in the service's count that are counted here too. */
  refusals: bigint;
  /** The highest event that was sent on a stream; undefined (unknown) for a left producer. */
  sent: bigint | undefined;
  /** Numbers of remaining records that the service has refused, and that were reported. */
  readonly refused: Set<bigint>;
  /**
   * User messages that are not settled, the oldest first: the events given after one are sent after it, so that the answer is never stored before the question. Not in the file.
   */
  readonly questions: PendingQuestion[];
  /** The highest message in the file; undefined: the producer has no file. */
  messagesInFile: bigint | undefined;
  /** The first event whose messages are not derived yet. */
  firstUnderived: bigint | undefined;
  readonly events: SpoolQueue<EventRecord>;
  readonly messages: SpoolQueue<MessageRecord>;
}

interface PendingQuestion {
  /** The number of the message. */
  readonly message: bigint;
  /** The last event that was given before it. */
  readonly lastEvent: bigint;
}

/** The drops since the last mark in the stream. */
export interface DropGap {
  readonly events: number;
  readonly messages: number;
  readonly sinceMicros: bigint;
}

/** The CUSTOM event that marks missing records. */
export function gapMark({ events, messages, sinceMicros }: DropGap): string {
  const since = new Date(msOf(sinceMicros)).toISOString();
  const value = { events, messages, since };
  return JSON.stringify({ type: "CUSTOM", name: "session_ledger.dropped", value });
}

/** The counts of records of one kind. */
export interface Counts {
  /** Taken into the spool, also from the file; with any later outcome. */
  readonly accepted: number;
  readonly committed: number;
  /** Not acceptable to the service, or already here (and then never accepted). Never stored. */
  readonly refused: number;
  /** Without room, given after the end, or given up with the session or to another writer. */
  readonly dropped: number;
  /** Accepted, with an unknown outcome. */
  readonly pending: number;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** The cost of a record without its text: the object, its numbers, its slot in the queue. */
const RECORD_BYTES = 128;
const RESERVE_PART = 1 / 8;
const REOPEN_PART = 3 / 4;

export class Spool {
  readonly #bytesMax: number;
  readonly #eventBytesMax: number;
  readonly #events = new RecordAccount();
  readonly #messages = new RecordAccount();
  #isClosed = false;
  #gap: Mutable<DropGap> | undefined;

  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
    this.#eventBytesMax = Math.floor(bytesMax * (1 - RESERVE_PART));
  }

  get events(): Counts {
    return { ...this.#events.counts };
  }

  get messages(): Counts {
    return { ...this.#messages.counts };
  }

  get pendingBytes(): number {
    return this.#events.bytes + this.#messages.bytes;
  }

  /** Whether an empty spool could hold the text. A larger text would block the spool for good. */
  canHold(kind: "events" | "messages", payload: string): boolean {
    const bytesMax = kind === "events" ? this.#eventBytesMax : this.#bytesMax;
    return Buffer.byteLength(payload) + RECORD_BYTES <= bytesMax;
  }

  /** False: dropped, and counted. */
  offerEvent(producer: Producer, payload: string, atMicros: bigint): boolean {
    const record = eventRecord(payload, atMicros, false);
    if (this.#isClosed || !this.#hasRoom(record.bytes + RECORD_BYTES)) {
      this.#isClosed = true;
      this.#drop("events", atMicros);
      return false;
    }
    this.#events.add(record);
    producer.events.push(record);
    return true;
  }

  /** False: dropped, and counted. */
  offerMessage(
    producer: Producer,
    message: Omit<MessageRecord, "bytes">,
    atMicros: bigint,
  ): boolean {
    const record = messageRecord(message);
    if (this.pendingBytes + record.bytes + RECORD_BYTES > this.#bytesMax) {
      this.#drop("messages", atMicros);
      return false;
    }
    this.#messages.add(record);
    producer.messages.push(record);
    if (record.eventType === "user")
      producer.questions.push({
        message: producer.messages.lastNumber,
        lastEvent: producer.events.lastNumber,
      });
    return true;
  }

  /** A mark of the writer itself: it is not counted, and never dropped; each gap has one. */
  addMark(producer: Producer, payload: string, atMicros: bigint): void {
    const record = eventRecord(payload, atMicros, true);
    this.#events.add(record);
    producer.events.push(record);
  }

  /** Counts the records of a producer that was read from a file. They may exceed the bound. */
  adopt({ events, messages }: Producer): void {
    for (const record of events) this.#events.add(record);
    for (const record of messages) this.#messages.add(record);
  }

  /** A record that was refused before it reached the spool, or given to a writer that has ended. */
  count(kind: "events" | "messages", outcome: "refused" | "dropped"): void {
    (kind === "events" ? this.#events : this.#messages).counts[outcome] += 1;
  }

  /** Everything up to `number` is decided: `refused` events were refused, the others committed. */
  settleEvents(
    producer: Producer,
    number: bigint,
    { refused }: { readonly refused: number },
  ): void {
    const counted = this.#events.remove(producer.events.takeUpTo(number));
    const refusedHere = Math.min(refused, counted);
    this.#events.counts.refused += refusedHere;
    this.#events.counts.committed += counted - refusedHere;
    this.#reopen();
  }

  settleMessage({ messages, questions }: Producer, outcome: "committed" | "refused"): void {
    if (questions[0]?.message === messages.frontNumber) questions.shift();
    this.#messages.counts[outcome] += this.#messages.remove(
      messages.takeUpTo(messages.frontNumber),
    );
    this.#reopen();
  }

  /** Gives up the records of the producer; returns their counts. */
  dropProducer(producer: Producer): { readonly events: number; readonly messages: number } {
    const events = this.#events.remove(producer.events.takeUpTo(producer.events.lastNumber));
    const messages = this.#messages.remove(
      producer.messages.takeUpTo(producer.messages.lastNumber),
    );
    this.#events.counts.dropped += events;
    this.#messages.counts.dropped += messages;
    producer.questions.length = 0;
    this.#reopen();
    return { events, messages };
  }

  /** The dropped counts, once room is free again; undefined: none, or not yet. */
  takeGap(): DropGap | undefined {
    if (this.#isClosed || !this.#hasRoom(0, REOPEN_PART)) return undefined;
    const gap = this.#gap;
    this.#gap = undefined;
    return gap;
  }

  /** Whether an event of this size fits into a part of the spool. */
  #hasRoom(bytes: number, part = 1): boolean {
    return (
      this.#events.bytes + bytes <= this.#eventBytesMax * part &&
      this.pendingBytes + bytes <= this.#bytesMax * part
    );
  }

  #reopen(): void {
    if (this.#hasRoom(0, REOPEN_PART)) this.#isClosed = false;
  }

  #drop(kind: "events" | "messages", atMicros: bigint): void {
    this.count(kind, "dropped");
    this.#gap ??= { events: 0, messages: 0, sinceMicros: atMicros };
    this.#gap[kind] += 1;
  }
}

/** The records of one kind: the bytes of those that wait, and the counts of all. */
class RecordAccount {
  readonly counts: Mutable<Counts> = {
    accepted: 0,
    committed: 0,
    refused: 0,
    dropped: 0,
    pending: 0,
  };
  bytes = 0;

  add({ bytes, isMark = false }: { readonly bytes: number; readonly isMark?: boolean }): void {
    this.bytes += bytes + RECORD_BYTES;
    if (isMark) return;
    this.counts.accepted += 1;
    this.counts.pending += 1;
  }

  /** Returns the number of the records that count. */
  remove(records: readonly { readonly bytes: number; readonly isMark?: boolean }[]): number {
    for (const { bytes } of records) this.bytes -= bytes + RECORD_BYTES;
    const counted = records.filter(({ isMark = false }) => !isMark).length;
    this.counts.pending -= counted;
    return counted;
  }
}

/** Makes a record, also from a line of the file. */
export function eventRecord(payload: string, atMicros: bigint, isMark: boolean): EventRecord {
  return { payload, atMicros, bytes: Buffer.byteLength(payload), isMark };
}

export function messageRecord(message: Omit<MessageRecord, "bytes">): MessageRecord {
  return { ...message, bytes: Buffer.byteLength(message.payload) };
}

export function newProducer(producer: Partial<Producer> = {}): Producer {
  return {
    generation: 0,
    isLeft: false,
    epoch: undefined,
    proposed: undefined,
    base: undefined,
    refusals: 0n,
    sent: producer.isLeft === true ? undefined : 0n,
    refused: new Set(),
    questions: [],
    messagesInFile: undefined,
    firstUnderived: undefined,
    events: new SpoolQueue<EventRecord>(),
    messages: new SpoolQueue<MessageRecord>(),
    ...producer,
  };
}

/** The last event that may be sent. */
export function sendableUpTo(producer: Producer): bigint {
  const { events, questions } = producer;
  return min(
    questions[0]?.lastEvent ?? events.lastNumber,
    lastInFile(producer) ?? events.lastNumber,
  );
}

/**
 * With a file, an event waits until the messages that it completes are in the file. Otherwise a
 * killed process could leave the event in the service, and its message nowhere.
 */
function lastInFile({ messages, messagesInFile, firstUnderived }: Producer): bigint | undefined {
  if (messagesInFile === undefined) return undefined;
  for (let at = later(messagesInFile + 1n, messages.frontNumber); ; at += 1n) {
    const record = messages.at(at);
    const first = record === undefined ? firstUnderived : record.after;
    if (first !== undefined) return first - 1n;
    if (record === undefined) return undefined;
  }
}

/** The message that may be sent now. A derived one waits, so a reader never has it before its events. */
export function sendableMessage({ events, messages }: Producer): MessageRecord | undefined {
  const record = messages.at(messages.frontNumber);
  // The file of a process that died may have the message and not the event.
  const after = min(record?.after ?? 0n, events.lastNumber);
  return after < events.frontNumber ? record : undefined;
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

export function later(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

export function isEmpty({ events, messages }: Producer): boolean {
  return events.length === 0 && messages.length === 0;
}
