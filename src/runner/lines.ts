/**
 * Lines as bytes. Lines are cut before decoding, so a character that arrives in two chunks stays
 * one character; in UTF-8, LF cannot be part of another character. The reader holds one line and
 * one chunk. A longer line is dropped while it arrives, and only its number is reported.
 */
export interface Line {
  /** Counted from 1, as editors do. */
  readonly number: number;
  /** The line without its end (LF or CR LF); undefined when it was too long. */
  readonly bytes: Buffer | undefined;
  /** The number of input bytes up to the end of this line. */
  readonly endByte: number;
}

export interface LinesOptions {
  /** The longest line that is held, without its end. */
  readonly bytesMax: number;
  /**
   * True: the first longer line is the last one, and is reported before its end, which may never
   * come.
   */
  readonly stopsAtTooLong?: boolean;
}

export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  { bytesMax, stopsAtTooLong = false }: LinesOptions,
): AsyncGenerator<Line, void, undefined> {
  // One byte more, because a CR at the end does not count.
  const held = new HeldBytes(bytesMax + 1);
  let number = 0;
  let endByte = 0;

  const close = (): Line => {
    const bytes = withoutReturn(held.take());
    const isTooLong = bytes === undefined || bytes.length > bytesMax;
    number += 1;
    return { number, bytes: isTooLong ? undefined : bytes, endByte };
  };

  for await (const chunk of chunks) {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      if (end === -1) break;
      held.append(chunk.subarray(start, end));
      endByte += end + 1 - start;
      const line = close();
      yield line;
      if (stopsAtTooLong && line.bytes === undefined) return;
      start = end + 1;
    }
    held.append(chunk.subarray(start));
    endByte += chunk.length - start;
    if (stopsAtTooLong && held.isTooLong) return yield close();
  }
  if (held.length > 0) yield close(); // The last line needs no end.
}

/** The text of a line; undefined when it is not UTF-8. */
export function decodeLine({ number, bytes }: Line): string | undefined {
  if (bytes === undefined) return undefined;
  try {
    return decoder.decode(number === 1 ? withoutMark(bytes) : bytes);
  } catch {
    return undefined;
  }
}

const LF = 0x0a;
const CR = 0x0d;
const BYTE_ORDER_MARK = Buffer.from("\uFEFF");

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The buffer that is kept from one line to the next. */
const KEPT_BYTES = 65_536;

/**
 * An incomplete line, copied into one buffer. A list of its pieces would cost many times their
 * bytes when the input arrives byte by byte.
 */
class HeldBytes {
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
    const held = this.#buffer.subarray(0, this.#length);
    const bytes = this.isTooLong ? undefined : Buffer.from(held);
    this.#length = 0;
    if (this.#buffer.length > KEPT_BYTES) this.#buffer = Buffer.alloc(0);
    return bytes;
  }

  #grow(length: number): void {
    const grown = Buffer.alloc(Math.min(this.#bytesMax, Math.max(length, 2 * this.#buffer.length)));
    grown.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = grown;
  }
}

function withoutReturn(bytes: Buffer | undefined): Buffer | undefined {
  return bytes?.at(-1) === CR ? bytes.subarray(0, -1) : bytes;
}

/** Editors on Windows write one; it belongs to the file and not to the first line. */
function withoutMark(bytes: Buffer): Buffer {
  return bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK)
    ? bytes.subarray(BYTE_ORDER_MARK.length)
    : bytes;
}
