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

import { isObject, parseJson } from "../../agui/json.ts";
import type { SpoolQueue } from "./queue.ts";
import {
  type EventRecord,
  eventRecord,
  type Lane,
  type MessageRecord,
  messageRecord,
  newLane,
} from "./spool.ts";

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
  readonly #lanes = new Map<number, Lane>();
  #hasHeader = false;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  /** In their order, with the settled ones. */
  get lanes(): readonly Lane[] {
    return [...this.#lanes.values()];
  }

  /** Throws when the file is not one of this session; an unreadable line is ignored. */
  read(text: string): void {
    const value = parseJson(text);
    if (!this.#hasHeader) return this.#readHeader(value);
    if (!Array.isArray(value)) return;
    const [kind, generation, ...rest]: readonly unknown[] = value;
    if (typeof generation !== "number" || !Number.isSafeInteger(generation)) return;
    if (kind === "lane") return this.#readLane(generation, rest);
    const lane = this.#lanes.get(generation);
    const number = numberOf(rest[0]);
    if (lane === undefined || number === undefined) return;
    if (kind === "event") add(lane.events, number, eventOf(rest));
    else if (kind === "message") add(lane.messages, number, messageOf(rest));
    else if (kind === "settled") {
      lane.events.skipTo(number + 1n);
      lane.messages.skipTo((numberOf(rest[1]) ?? 0n) + 1n);
      lane.refusals = numberOf(rest[2]) ?? lane.refusals;
    }
  }

  #readHeader(value: unknown): void {
    if (!isObject(value) || value["sessionLedgerSpool"] !== VERSION) {
      throw new Error("the file is not a spool of this version");
    }
    if (value["sessionId"] !== this.#sessionId) {
      throw new Error("the file is the spool of another session");
    }
    this.#hasHeader = true;
  }

  #readLane(generation: number, [start, ...numbers]: readonly unknown[]): void {
    const known = this.#lanes.get(generation);
    const lane = known ?? newLane(String(start), { generation, isLeft: true });
    this.#lanes.set(generation, lane);
    const [epoch, base, first, last, proposed] = numbers.map(numberOf);
    lane.epoch = epoch;
    lane.proposed = proposed;
    lane.base = base;
    if (first === undefined || last === undefined) return;
    lane.cut = { first, last };
    lane.events.skipTo(first); // The rows before it were answered.
  }
}

/** An existing number changes nothing, and a gap means that all earlier records are settled. */
function add<T>(queue: SpoolQueue<T>, number: bigint, record: T | undefined): void {
  if (record === undefined || number <= queue.lastNumber) return;
  if (number > queue.lastNumber + 1n) queue.skipTo(number);
  queue.push(record);
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
