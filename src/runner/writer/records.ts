/**
 * Converts a caller's values to the records of the spool. Throws for an invalid value: a message
 * that cannot be encoded would be pushed again and again, and block the messages after it.
 */
import { isDate } from "node:util/types";
import type { MessageRecord } from "../spool/spool.ts";
import type { Sender } from "../rows.ts";
import type { WriterMessage } from "./types.ts";

/** A request has at most 4 MiB, and the payload is only a part of it. */
const PAYLOAD_BYTES_MAX = 3.5 * 1024 * 1024;
const UNIT_BYTES_MAX = 3;
const MICROS_PER_MS = 1_000n;

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
  if (typeof text !== "string") throw new TypeError("it has no JSON");
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
  if (!Number.isInteger(ms)) throw new RangeError("sentAt is no time");
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
