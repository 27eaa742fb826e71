/**
 * The agent's side of a writer: its values become records, and its events become messages, without
 * delaying the agent.
 */
import { isDate } from "node:util/types";
import type { MessageDeriver } from "../derive/derive.ts";
import type { Sender } from "../rows.ts";
import type { MessageRecord } from "../spool/spool.ts";
import type { Book } from "./book.ts";
import type { WriterMessage } from "./types.ts";

/** A request has at most 4 MiB, and the payload is only a part of it. */
const PAYLOAD_BYTES_MAX = 3.5 * 1024 * 1024;
const UNIT_BYTES_MAX = 3;
const MICROS_PER_MS = 1_000n;

/**
 * Throws for an invalid value, as messageOf does: a record that cannot be encoded would be pushed
 * again and again, and block the records after it.
 */
export function eventPayload(event: unknown): string {
  const text = printed(event);
  return text.isWellFormed() ? text : withEscapedHalves(text);
}

export function messageOf(message: WriterMessage): Omit<MessageRecord, "bytes"> {
  const { type, payload, key, sentAt, sender } = message;
  return {
    eventType: textField("type", type),
    payload: printed(payload).toWellFormed(),
    key: textField("key", key || undefined, crypto.randomUUID()),
    sentAtMicros: microsOf(sentAt ?? undefined),
    sender: senderOf(sender ?? undefined),
  };
}

function printed(value: unknown): string {
  const text: unknown = typeof value === "string" ? value : JSON.stringify(value);
  if (typeof text !== "string") throw new TypeError("the value has no JSON");
  const mayBeLarge = text.length * UNIT_BYTES_MAX > PAYLOAD_BYTES_MAX;
  const isLarge = text.length > PAYLOAD_BYTES_MAX; // Measuring a text of 100 MiB takes long.
  if (isLarge || (mayBeLarge && Buffer.byteLength(text) > PAYLOAD_BYTES_MAX)) {
    throw new RangeError(`a payload has at most ${PAYLOAD_BYTES_MAX} bytes`);
  }
  return text;
}

/**
 * Half of a surrogate pair has no UTF-8 form; JSON has an escape for it, which gives the same
 * string.
 */
function withEscapedHalves(json: string): string {
  return json.replaceAll(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
}

function textField(name: string, value: unknown, fallback?: string): string {
  const text = value ?? fallback;
  if (typeof text !== "string") throw new TypeError(`${name} must be a string`);
  return text;
}

/** Only a Date: a number would not state its unit, and a text not its time zone. */
function microsOf(sentAt: unknown): bigint | undefined {
  if (sentAt === undefined) return undefined;
  if (!isDate(sentAt)) throw new TypeError("sentAt must be a Date");
  const ms = sentAt.getTime();
  if (!Number.isInteger(ms)) throw new RangeError("sentAt is not a valid time");
  return BigInt(ms) * MICROS_PER_MS;
}

function senderOf(sender: Sender | undefined): Sender | undefined {
  if (sender === undefined) return undefined;
  if (typeof sender !== "object") throw new TypeError("sender must be an object");
  const { id, name, displayName, isBot, channel, channelId, threadId } = sender;
  const texts = { id, name, displayName, channel, channelId, threadId };
  for (const [field, value] of Object.entries(texts)) textField(`sender.${field}`, value, "");
  if (isBot !== undefined && typeof isBot !== "boolean") {
    throw new TypeError("sender.isBot must be a boolean");
  }
  const given = Object.entries({ ...texts, isBot }).filter(
    ([, value]) => value !== undefined && value !== null,
  );
  return Object.fromEntries(given);
}

/**
 * Text that is parsed within a call of `event`, in UTF-16 units: about 25 µs (Node 24, a loaded
 * 2-core machine).
 */
const AT_ONCE_UNITS_MAX = 4_096;
/** Text that is parsed in one turn of the event loop; at least one event. */
const SLICE_UNITS = 32_768;
const WAITING_UNITS_MAX = 8 * 1024 * 1024;

interface Waiting {
  readonly payload: string;
  readonly atMicros: bigint;
}

/**
 * Derives messages from events. Deriving means parsing, which takes microseconds for a token and
 * milliseconds for a snapshot of a megabyte. So small events are parsed at once. After a large
 * event, all events wait for a later turn, in their order. The waiting text is bounded: an agent
 * that emits more without ever yielding its turn pays for the parsing in that turn.
 */
export class BackgroundDeriver {
  readonly #deriver: MessageDeriver;
  readonly #book: Book;
  #waiting: Waiting[] = [];
  #waitingUnits = 0;
  #isScheduled = false;

  constructor(deriver: MessageDeriver, book: Book) {
    this.#deriver = deriver;
    this.#book = book;
  }

  next(payload: string, atMicros: bigint): void {
    if (this.#waiting.length === 0 && payload.length <= AT_ONCE_UNITS_MAX) {
      this.#derive({ payload, atMicros });
      return;
    }
    this.#waiting.push({ payload, atMicros });
    this.#waitingUnits += payload.length;
    if (this.#waitingUnits > WAITING_UNITS_MAX) this.settle();
    else this.#schedule();
  }

  /** Derives from all waiting events now. */
  settle(): void {
    this.#slice(Number.POSITIVE_INFINITY);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#slice(SLICE_UNITS);
      if (this.#waiting.length > 0) this.#schedule();
    });
  }

  #slice(unitsMax: number): void {
    let units = 0;
    let count = 0;
    for (const event of this.#waiting) {
      if (count > 0 && units + event.payload.length > unitsMax) break;
      units += event.payload.length;
      count += 1;
      this.#derive(event);
    }
    this.#waiting = this.#waiting.slice(count);
    this.#waitingUnits -= units;
  }

  #derive({ payload, atMicros }: Waiting): void {
    for (const { eventType, payload: text, key } of this.#deriver.next(payload)) {
      const message = { eventType, payload: text.toWellFormed(), key };
      this.#book.message({ ...message, sentAtMicros: undefined, sender: undefined }, atMicros);
    }
  }
}
