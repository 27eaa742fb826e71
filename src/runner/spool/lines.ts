/**
 * The format of the spool's file, with pure functions. Each line is independent JSON, so a line
 * that a dying process did not finish is ignored.
 *
 *   {"sessionLedgerSpool":1,"sessionId":"s1"}         first
 *   ["lane",2,"<start>",null,null,null,null,"9"]      lane 2: epoch and base not known, 9 proposed
 *   ["lane",2,"<start>","7","0",null,null,"9"]        epoch 7, base 0
 *   ["lane",2,"<start>",null,null,"12","19","9"]      its events 12 to 19 are pushed as one row
 *   ["event",2,"12","1700000000000000",0,"{…}"]       its event 12: time, whether it is a mark, payload
 *   ["message",2,"3",{"eventType":…}]                 its message 3
 *   ["settled",2,"11","3","0"]                        events up to 11, messages up to 3; refusals so far
 *
 * The numbers of a lane are written in order. Records that were settled before the write are left
 * out, so a gap means that all earlier records are settled.
 */
import { isObject } from "../../agui/json.ts";
import {
  type Cut,
  type EventRecord,
  eventRecord,
  type Lane,
  type MessageRecord,
  messageRecord,
  newLane,
} from "./spool.ts";
import { SpoolQueue } from "./queue.ts";
import type { Sender } from "../rows.ts";

const VERSION = 1;

export function headerLine(sessionId: string): string {
  return line({ sessionLedgerSpool: VERSION, sessionId });
}

export function laneLine({ generation, start, epoch, base, cut, proposed }: Lane): string {
  const numbers = [epoch, base, cut?.first, cut?.last, proposed].map((number) => number ?? null);
  return line(["lane", generation, start, ...numbers]);
}

export function eventLine({ generation }: Lane, number: bigint, record: EventRecord): string {
  const { atMicros, isMark, payload } = record;
  return line(["event", generation, number, atMicros, isMark ? 1 : 0, payload]);
}

export function messageLine({ generation }: Lane, number: bigint, record: MessageRecord): string {
  const { bytes: _, ...message } = record;
  return line(["message", generation, number, message]);
}

export function settledLine({ generation, events, messages, refusals }: Lane): string {
  return line([
    "settled",
    generation,
    events.frontNumber - 1n,
    messages.frontNumber - 1n,
    refusals,
  ]);
}

function line(value: unknown): string {
  const text = JSON.stringify(value, (_, part: unknown) =>
    typeof part === "bigint" ? String(part) : part,
  );
  return `${text}\n`;
}

/** The content of a file, read line by line. */
export class SpoolReader {
  readonly #sessionId: string;
  readonly #lanes = new Map<number, ReadLane>();
  #hasHeader = false;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  /** Throws when the file is not one of this session; an unreadable line is ignored. */
  read(text: string): void {
    const value = parsed(text);
    if (!this.#hasHeader) return this.#readHeader(value);
    if (!Array.isArray(value)) return;
    const [kind, generation, ...rest]: readonly unknown[] = value;
    if (typeof generation !== "number" || !Number.isSafeInteger(generation)) return;
    if (kind === "lane") this.#readLane(generation, rest);
    else this.#lanes.get(generation)?.read(kind, rest);
  }

  /** In their order, with the settled ones. */
  get lanes(): readonly Lane[] {
    return Array.from(this.#lanes.values(), (lane) => lane.lane);
  }

  #readHeader(value: unknown): void {
    if (!isObject(value) || value["sessionLedgerSpool"] !== VERSION) {
      throw new Error("the file is no spool of this version");
    }
    if (value["sessionId"] !== this.#sessionId) {
      throw new Error("the file is the spool of another session");
    }
    this.#hasHeader = true;
  }

  #readLane(generation: number, [start, ...numbers]: readonly unknown[]): void {
    const lane = this.#lanes.get(generation) ?? new ReadLane(generation, String(start));
    this.#lanes.set(generation, lane);
    lane.readNumbers(numbers);
  }
}

class ReadLane {
  readonly #generation: number;
  readonly #start: string;
  #events = new SpoolQueue<EventRecord>();
  #messages = new SpoolQueue<MessageRecord>();
  #refusals = 0n;
  #epoch: bigint | undefined;
  #proposed: bigint | undefined;
  #base: bigint | undefined;
  #cut: Cut | undefined;

  constructor(generation: number, start: string) {
    this.#generation = generation;
    this.#start = start;
  }

  get lane(): Lane {
    return newLane(this.#start, {
      generation: this.#generation,
      isLeft: true,
      epoch: this.#epoch,
      proposed: this.#proposed,
      base: this.#base,
      cut: this.#cut,
      refusals: this.#refusals,
      events: this.#events,
      messages: this.#messages,
    });
  }

  readNumbers(numbers: readonly unknown[]): void {
    const [epoch, base, first, last, proposed] = numbers.map(numberOf);
    this.#epoch = epoch;
    this.#proposed = proposed;
    this.#base = base;
    if (first === undefined || last === undefined) return;
    this.#cut = { first, last };
    this.#events = settled(this.#events, first - 1n); // The rows before it were answered.
  }

  read(kind: unknown, rest: readonly unknown[]): void {
    const number = numberOf(rest[0]);
    if (number === undefined) return;
    if (kind === "settled") this.#settle(number, rest);
    else if (kind === "event") this.#events = added(this.#events, number, eventOf(rest));
    else if (kind === "message") this.#messages = added(this.#messages, number, messageOf(rest));
  }

  #settle(events: bigint, [, messages, refusals]: readonly unknown[]): void {
    this.#events = settled(this.#events, events);
    this.#messages = settled(this.#messages, numberOf(messages) ?? 0n);
    this.#refusals = numberOf(refusals) ?? this.#refusals;
  }
}

/**
 * The queue with one more record: an existing number changes nothing, and a gap empties the queue.
 */
function added<T>(queue: SpoolQueue<T>, number: bigint, record: T | undefined): SpoolQueue<T> {
  if (record === undefined || number <= queue.lastNumber) return queue;
  const next = number === queue.lastNumber + 1n ? queue : new SpoolQueue<T>(number);
  next.push(record);
  return next;
}

function settled<T>(queue: SpoolQueue<T>, number: bigint): SpoolQueue<T> {
  if (number > queue.lastNumber) return new SpoolQueue<T>(number + 1n);
  queue.takeUpTo(number);
  return queue;
}

function eventOf([, atMicros, isMark, payload]: readonly unknown[]): EventRecord | undefined {
  const at = numberOf(atMicros);
  if (at === undefined || typeof payload !== "string") return undefined;
  return eventRecord(payload, at, isMark === 1);
}

function messageOf([, message]: readonly unknown[]): MessageRecord | undefined {
  if (!isObject(message)) return undefined;
  const { eventType, payload, key, sentAtMicros, sender } = message;
  if (typeof eventType !== "string" || typeof payload !== "string" || typeof key !== "string") {
    return undefined;
  }
  return messageRecord({
    eventType,
    payload,
    key,
    sentAtMicros: numberOf(sentAtMicros),
    sender: isObject(sender) ? senderOf(sender) : undefined,
  });
}

/** In the form written from a Sender. */
function senderOf(sender: Sender): Sender {
  return { ...sender };
}

function numberOf(value: unknown): bigint | undefined {
  return typeof value === "string" && /^-?\d{1,20}$/.test(value) ? BigInt(value) : undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
