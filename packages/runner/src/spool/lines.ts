/**
 * The format of the spool's file, with pure functions. Each line is independent JSON after the first eight
 * hexadecimal digits of its SHA-256, so a damaged line is known, and the other lines are whole.
 *
 *   {"sessionLedgerSpool":2,"sessionId":"s1"}              first, without digits
 *   … ["lane",2,"",null,null,null,null,"9"]                producer 2: epoch and base not known, 9 proposed
 *   … ["lane",2,"","7","0",null,null,"9"]                  epoch 7, base 0; the empty places are not used
 *   … ["event",2,"12","1700000000000000",0,"{…}","11"]     its event 12: time, whether it is a mark, payload
 *   … ["message",2,"3",{"eventType":…},"2"]                its message 3
 *   … ["settled",2,"11","3","0"]                           events up to 11, messages up to 3; refusals so far
 *
 * The numbers of a producer are written in order. Records that were settled before the write are left out. The
 * last part of a record is the highest settled number at the time of the write, so any other missing number
 * is that of a lost record. A lost event keeps its number, by which the service knows later events: a
 * mark replaces it.
 *
 * Version 1 had neither digits nor that part: a gap in it means that all earlier records are settled, unless
 * unreadable lines explain it.
 */
import { createHash } from "node:crypto";
import { isObject, parseJson } from "@session-ledger/agui/json";
import type { SpoolQueue } from "./queue.ts";
import {
  type EventRecord,
  eventRecord,
  gapMark,
  type Producer,
  later,
  type MessageRecord,
  messageRecord,
  newProducer,
} from "./spool.ts";

const VERSIONS: readonly unknown[] = [1, 2];
const DIGITS = 8;

export function headerLine(sessionId: string): string {
  return `${jsonOf({ sessionLedgerSpool: 2, sessionId })}\n`;
}

export function producerLine({ generation, epoch, base, proposed }: Producer): string {
  const [epochOrNull, first, asked] = [epoch, base, proposed].map((number) => number ?? null);
  return line(["lane", generation, "", epochOrNull, first, null, null, asked]);
}

export function eventLine(producer: Producer, number: bigint, record: EventRecord): string {
  const { atMicros, isMark, payload } = record;
  const settled = producer.events.frontNumber - 1n;
  return line(["event", producer.generation, number, atMicros, isMark ? 1 : 0, payload, settled]);
}

export function messageLine(producer: Producer, number: bigint, record: MessageRecord): string {
  const { bytes: _, ...message } = record;
  return line([
    "message",
    producer.generation,
    number,
    message,
    producer.messages.frontNumber - 1n,
  ]);
}

export function settledLine({ generation, events, messages, refusals }: Producer): string {
  return line([
    "settled",
    generation,
    events.frontNumber - 1n,
    messages.frontNumber - 1n,
    refusals,
  ]);
}

function line(value: readonly unknown[]): string {
  const json = jsonOf(value);
  return `${digitsOf(json)} ${json}\n`;
}

function jsonOf(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === "bigint" ? String(part) : part,
  );
}

function digitsOf(json: string): string {
  return createHash("sha256").update(json).digest("hex").slice(0, DIGITS);
}

/** The damage that a reader has found. */
export interface Damage {
  /** Damaged lines, also those whose records are not known. */
  readonly lines: number;
  /** The number of the first one; 0: none. */
  readonly firstLine: number;
  /** Records that are known to be lost. */
  readonly events: number;
  readonly messages: number;
}

/** The content of a file, read line by line. */
export class SpoolReader {
  readonly #sessionId: string;
  readonly #producers = new Map<number, ProducerLines>();
  #version: unknown;
  #lines = 0;
  #damaged = 0;
  #firstDamaged = 0;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  /**
   * Undefined: bytes that are no text. `isTorn`: the last line has no end, because its process was killed
   * in the write, and that is no damage. Throws when the file is not one of this session.
   */
  read(text: string | undefined, { isTorn = false } = {}): void {
    this.#lines += 1;
    if (this.#version === undefined) {
      this.#version = versionIn(parseJson(text ?? ""), this.#sessionId);
      return;
    }
    const value = this.#valueOf(text ?? "");
    if ((!Array.isArray(value) || !this.#take(value)) && !isTorn) this.#damage();
  }

  /** In their order, with the settled ones, and the lost records. Call it once, after the last line. */
  end(): { readonly producers: readonly Producer[]; readonly damage: Damage } {
    const producers: Producer[] = [];
    const lost = { events: 0, messages: 0 };
    for (const lines of this.#producers.values()) {
      const left = lines.end();
      lost.events += left.events;
      lost.messages += left.messages;
      if (left.producer !== undefined) producers.push(left.producer);
    }
    return { producers, damage: { lines: this.#damaged, firstLine: this.#firstDamaged, ...lost } };
  }

  #valueOf(text: string): unknown {
    if (this.#version === 1) return parseJson(text);
    const json = text.slice(DIGITS + 1);
    return text === `${digitsOf(json)} ${json}` ? parseJson(json) : undefined;
  }

  #damage(): void {
    if (this.#damaged === 0) this.#firstDamaged = this.#lines;
    this.#damaged += 1;
  }

  /** False: it is no line of a spool. */
  #take([kind, generation, ...rest]: readonly unknown[]): boolean {
    if (typeof generation !== "number" || !Number.isSafeInteger(generation)) return false;
    const lines = this.#producers.get(generation) ?? new ProducerLines(generation);
    this.#producers.set(generation, lines);
    if (kind === "lane") return lines.setProducer(rest);
    const number = numberOf(rest[0]);
    if (number === undefined) return false;
    const at = { number, damaged: this.#damaged };
    if (kind === "event") return lines.events.add(at, eventOf(rest), numberOf(rest[4]));
    if (kind === "message") return lines.messages.add(at, messageOf(rest), numberOf(rest[2]));
    if (kind !== "settled") return false;
    lines.events.settle(number);
    lines.messages.settle(numberOf(rest[1]) ?? 0n);
    lines.refusals = numberOf(rest[2]) ?? lines.refusals;
    return true;
  }
}

/** Throws when the line is not the first one of a spool of this session. */
function versionIn(value: unknown, sessionId: string): unknown {
  const version = isObject(value) ? value["sessionLedgerSpool"] : undefined;
  if (!isObject(value) || !VERSIONS.includes(version))
    throw new Error("the file is not a spool of this version");
  if (value["sessionId"] !== sessionId) throw new Error("the file is the spool of another session");
  return version;
}

/** The lines of one producer. */
class ProducerLines {
  readonly events = new Numbered<EventRecord>();
  readonly messages = new Numbered<MessageRecord>();
  refusals: bigint | undefined;
  readonly #generation: number;
  #producer: Producer | undefined;

  constructor(generation: number) {
    this.#generation = generation;
  }

  setProducer([, ...numbers]: readonly unknown[]): boolean {
    this.#producer ??= newProducer({ generation: this.#generation, isLeft: true });
    const [epoch, base, , , proposed] = numbers.map(numberOf);
    Object.assign(this.#producer, { epoch, base, proposed });
    return true;
  }

  /** Without a producer line the epoch of the records is unknown, so they are lost. */
  end(): {
    readonly producer: Producer | undefined;
    readonly events: number;
    readonly messages: number;
  } {
    const producer = this.#producer;
    if (producer === undefined)
      return { producer, events: this.events.waiting, messages: this.messages.waiting };
    producer.refusals = this.refusals ?? producer.refusals;
    const events = this.events.into(producer.events, (before) => {
      const sinceMicros = before?.atMicros ?? 0n;
      return eventRecord(gapMark({ events: 1, messages: 0, sinceMicros }), sinceMicros, true);
    });
    // Numbers of messages are known to this file only, so the later ones move up.
    return { producer, events, messages: this.messages.into(producer.messages, () => undefined) };
  }
}

/** The records of one kind, by their numbers. */
class Numbered<T> {
  readonly #records = new Map<bigint, T>();
  #settled = 0n;
  #last = 0n;
  /** Damaged lines of the file before the last record. */
  #damaged = 0;

  get waiting(): number {
    return this.#records.size;
  }

  /** False: no record. An existing number changes nothing. */
  add(
    { number, damaged }: { readonly number: bigint; readonly damaged: number },
    record: T | undefined,
    settled: bigint | undefined,
  ): boolean {
    if (record === undefined) return false;
    const isExplained = number - this.#last - 1n <= BigInt(damaged - this.#damaged);
    if (settled !== undefined) this.settle(settled);
    else if (!isExplained) this.settle(number - 1n);
    this.#damaged = damaged;
    this.#last = later(this.#last, number);
    if (number > this.#settled && !this.#records.has(number)) this.#records.set(number, record);
    return true;
  }

  settle(number: bigint): void {
    if (number <= this.#settled) return;
    this.#settled = number;
    this.#last = later(this.#last, number);
    for (const earlier of this.#records.keys()) {
      if (earlier > number) break; // They were added in their order.
      this.#records.delete(earlier);
    }
  }

  /** Returns the count of lost records; `lost` creates their substitutes from the record before. */
  into(queue: SpoolQueue<T>, lost: (before: T | undefined) => T | undefined): number {
    queue.skipTo(this.#settled + 1n);
    let missing = 0;
    let before: T | undefined;
    for (let number = this.#settled + 1n; number <= this.#last; number += 1n) {
      const record = this.#records.get(number);
      if (record === undefined) missing += 1;
      const next = record ?? lost(before);
      if (next !== undefined) queue.push(next);
      before = record ?? before;
    }
    return missing;
  }
}

function eventOf([, atMicros, isMark, payload]: readonly unknown[]): EventRecord | undefined {
  const at = numberOf(atMicros);
  if (at === undefined || typeof payload !== "string") return undefined;
  return eventRecord(payload, at, isMark === 1);
}

function messageOf([, message]: readonly unknown[]): MessageRecord | undefined {
  if (!isObject(message)) return undefined;
  const { eventType, payload, key, sentAtMicros, sender, after } = message;
  if (typeof eventType !== "string" || typeof payload !== "string" || typeof key !== "string") {
    return undefined;
  }
  return messageRecord({
    eventType,
    payload,
    key,
    sentAtMicros: numberOf(sentAtMicros),
    sender: isObject(sender) ? { ...sender } : undefined, // Written from a Sender.
    after: numberOf(after),
  });
}

function numberOf(value: unknown): bigint | undefined {
  return typeof value === "string" && /^-?\d{1,20}$/.test(value) ? BigInt(value) : undefined;
}
