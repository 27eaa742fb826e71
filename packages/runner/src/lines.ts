/**
 * Lines of bytes, and JSON lines, UTF-8, as `session-ledger export` writes and `push` reads them.
 * Lines are cut before decoding: in UTF-8, LF is no part of another character. The reader holds one
 * line and one chunk; a longer line is dropped, and only its number is reported.
 */
import { printJson } from "@session-ledger/agui/print";
import { utf8Of } from "@session-ledger/base/utf8";
import { EventItem } from "./rows.ts";

export interface Line {
  /** Counted from 1, as editors do. */
  readonly number: number;
  /** The line without its end (LF or CR LF); undefined when it was too long. */
  readonly bytes: Buffer | undefined;
  /** The number of input bytes up to the end of this line. */
  readonly endByte: number;
}

interface LinesOptions {
  /** The longest line that is held, without its end. */
  readonly bytesMax: number;
  /** True: the first longer line is the last, and is reported before its end. */
  readonly stopsAtTooLong?: boolean;
}

export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  { bytesMax, stopsAtTooLong = false }: LinesOptions,
): AsyncGenerator<Line, void, undefined> {
  // One byte more, because a CR at the end does not count.
  const buffer = new LineBuffer(bytesMax + 1);
  let number = 0;
  let endByte = 0;

  const close = (): Line => {
    const taken = buffer.take();
    const bytes = taken?.at(-1) === CR ? taken.subarray(0, -1) : taken;
    const isTooLong = bytes === undefined || bytes.length > bytesMax;
    number += 1;
    return { number, bytes: isTooLong ? undefined : bytes, endByte };
  };

  for await (const chunk of chunks) {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      if (end === -1) break;
      buffer.append(chunk.subarray(start, end));
      endByte += end + 1 - start;
      const line = close();
      yield line;
      if (stopsAtTooLong && line.bytes === undefined) return;
      start = end + 1;
    }
    buffer.append(chunk.subarray(start));
    endByte += chunk.length - start;
    if (stopsAtTooLong && buffer.isTooLong) return yield close();
  }
  if (buffer.length > 0) yield close(); // The last line needs no end.
}

/** The text of a line; undefined when it is not UTF-8. */
export function decodeLine({ number, bytes }: Line): string | undefined {
  return bytes && utf8Of(bytes, { isStart: number === 1 });
}

const LF = 0x0a;
const CR = 0x0d;

/** The buffer that is reused from one line to the next. */
const BUFFER_KEEP_BYTES = 65_536;

/** An incomplete line in one buffer: a list of its pieces would cost many times their bytes. */
class LineBuffer {
  readonly #bytesMax: number;
  #buffer: Buffer = Buffer.alloc(0);
  #length = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** The number of all appended bytes, held or not. */
  get length(): number {
    return this.#length;
  }

  get isTooLong(): boolean {
    return this.#length > this.#bytesMax;
  }

  append(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length <= this.#bytesMax) {
      if (length > this.#buffer.length) this.#grow(length);
      this.#buffer.set(piece, this.#length);
    }
    this.#length = length;
  }

  /** Undefined when the line was too long to be held. */
  take(): Buffer | undefined {
    const buffer = this.#buffer.subarray(0, this.#length);
    const bytes = this.isTooLong ? undefined : Buffer.from(buffer);
    this.#length = 0;
    if (this.#buffer.length > BUFFER_KEEP_BYTES) this.#buffer = Buffer.alloc(0);
    return bytes;
  }

  #grow(length: number): void {
    const grown = Buffer.alloc(Math.min(this.#bytesMax, Math.max(length, 2 * this.#buffer.length)));
    grown.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = grown;
  }
}

/**
 * One line per value. A text that is JSON is written as it is, an event from a reader as its
 * payload, and any other value as `JSON.stringify` prints it. Each line ends with LF.
 */
export async function* toJsonLines(
  values: AsyncIterable<unknown> | Iterable<unknown>,
): AsyncGenerator<string, void, undefined> {
  for await (const value of values)
    yield `${oneLine(typeof value === "string" ? value : textOf(value))}\n`;
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
  /** Longest line, without its end; default 34,000,000. */
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

/** Twice the largest payload that a service can be configured to accept: a line of a message escapes it. */
export const LINE_BYTES_MAX = 34_000_000;

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

/** Puts JSON on one line: a line break is white space; inside a string it is an escape. */
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

function textOf(value: unknown): string {
  if (value instanceof EventItem) return value.payload;
  const { text } = printJson(value);
  if (text === undefined) throw new TypeError("a value without JSON cannot be a line");
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
    const end = /[\uD800-\uDBFF]$/.test(text) ? text.length - 1 : text.length;
    half = text.slice(end);
    yield Buffer.from(text.slice(0, end));
  }
  if (half !== "") yield Buffer.from(half);
}
