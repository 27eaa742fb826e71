/**
 * JSON lines, written and read: one JSON text per line, UTF-8, the form that `session-ledger
 * export` writes and `push` reads. The input may be cut anywhere, also inside a character. One line
 * is held at a time.
 */
import { decodeLine, readLines } from "./lines.ts";
import { EventItem } from "./session-item.ts";

/**
 * One line per value. A text that is JSON is written as it is, an event from a reader as its
 * payload, and any other value as `JSON.stringify` prints it. Each line ends with LF.
 */
export async function* toJsonLines(
  values: AsyncIterable<unknown> | Iterable<unknown>,
): AsyncGenerator<string, void, undefined> {
  for await (const value of values) yield `${lineOf(value)}\n`;
}

/** A line that was read. */
export interface JsonLine {
  /** The line number in the input, from 1; empty lines count. */
  readonly number: number;
  /** The text of the line, without its end. */
  readonly text: string;
  /** The parsed value. Numbers beyond 2^53 are exact only in `text`. */
  readonly value: unknown;
}

export interface FromJsonLinesOptions {
  /** Longest line, without its end; default 4 MiB. */
  readonly lineBytesMax?: number;
}

/** The reason why a line cannot be read. */
export type JsonLineReason = "LINE_TOO_LONG" | "NOT_UTF8" | "NOT_JSON";

/** The input is wrong, with the place. All lines before it were delivered. */
export class JsonLinesError extends Error {
  override readonly name = "JsonLinesError";
  readonly lineNumber: number;
  readonly reason: JsonLineReason;

  constructor(
    { number, reason }: { readonly number: number; readonly reason: JsonLineReason },
    what: string,
    options?: ErrorOptions,
  ) {
    super(`line ${number} ${what}`, options);
    this.lineNumber = number;
    this.reason = reason;
  }
}

/** Above the largest payload that a service can be configured to accept (PAYLOAD_BYTES_MAX). */
export const LINE_BYTES_MAX = 4_194_304;

/**
 * The lines of a file, a request's body or a pipe: a ReadableStream or any async iterable of bytes
 * or texts. Lines end with LF or CR LF, and the last one needs no end. Empty lines and a byte order
 * mark are skipped. Throws a JsonLinesError at the first line that cannot be read.
 */
export async function* fromJsonLines(
  source: AsyncIterable<Uint8Array | string>,
  { lineBytesMax = LINE_BYTES_MAX }: FromJsonLinesOptions = {},
): AsyncGenerator<JsonLine, void, undefined> {
  const options = { bytesMax: lineBytesMax, stopsAtTooLong: true };
  for await (const line of readLines(bytesOf(source), options)) {
    const { number } = line;
    if (line.bytes === undefined)
      throw new JsonLinesError(
        { number, reason: "LINE_TOO_LONG" },
        `is longer than ${lineBytesMax} bytes`,
      );
    const text = decodeLine(line);
    if (text === undefined)
      throw new JsonLinesError({ number, reason: "NOT_UTF8" }, "is not UTF-8");
    if (!isBlank(text)) yield { number, text, value: parseLine(number, text) };
  }
}

/**
 * Puts JSON on one line: a line break is white space between two tokens, and inside a string an
 * escape.
 */
export function oneLine(json: string): string {
  return json.replaceAll(/[\r\n]+/g, " ");
}

/** Only JSON's white space. */
export function isBlank(text: string): boolean {
  return /^[ \t\r]*$/.test(text);
}

function parseLine(number: number, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new JsonLinesError({ number, reason: "NOT_JSON" }, "is not JSON", { cause });
  }
}

function lineOf(value: unknown): string {
  return oneLine(typeof value === "string" ? value : textOf(value));
}

function textOf(value: unknown): string {
  if (value instanceof EventItem) return value.payload;
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) throw new TypeError("what JSON has no text for cannot be a line");
  return text;
}

/** Texts may be cut between the halves of a character, as an agent's deltas are. */
async function* bytesOf(
  source: AsyncIterable<Uint8Array | string>,
): AsyncGenerator<Uint8Array, void, undefined> {
  let half = "";
  for await (const chunk of source) {
    if (typeof chunk !== "string") {
      if (half !== "") yield Buffer.from(half);
      half = "";
      yield chunk;
      continue;
    }
    const text = half + chunk;
    const end = isHighSurrogate(text.charCodeAt(text.length - 1)) ? text.length - 1 : text.length;
    half = text.slice(end);
    yield Buffer.from(text.slice(0, end));
  }
  if (half !== "") yield Buffer.from(half);
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
