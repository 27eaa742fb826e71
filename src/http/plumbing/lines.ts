/**
 * The lines of a body that arrives in pieces. Complete lines are decoded together, because a decoder
 * for each of a thousand short lines costs more than the lines. The incomplete line is copied: a
 * piece is a slice of one read from the socket, and would keep the whole read alive.
 */

import { utf8Of } from "../../base/utf8.ts";

const LINE_FEED = 0x0a;

/** The first buffer of an incomplete line. */
const LINE_BYTES_MIN = 256;

export type LineFault = "too long" | "not UTF-8";

export interface Lines {
  /** Without white space around them, and without empty lines. */
  readonly lines: readonly string[];
  /** The fault of the line after these; nothing can be read after it. */
  readonly fault?: LineFault;
}

export class LineReader {
  readonly #bytesMax: number;
  #rest = Buffer.alloc(0);
  #restBytes = 0;
  #isStart = true;

  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
  }

  /** Memory of the incomplete line. */
  get heldBytes(): number {
    return this.#rest.length;
  }

  /** True when a line has begun and is not complete. */
  get isInLine(): boolean {
    return this.#restBytes > 0;
  }

  read(piece: Buffer): Lines {
    const end = piece.lastIndexOf(LINE_FEED) + 1;
    if (this.#restBytes + (end === 0 ? piece.length : piece.indexOf(LINE_FEED)) > this.#bytesMax)
      return { lines: [], fault: "too long" };
    const lines = end === 0 ? NO_LINES : this.#complete(piece.subarray(0, end));
    if (end < piece.length) this.#keep(piece.subarray(end));
    return lines;
  }

  /** The last line of a body needs no line feed. */
  readLast(): Lines {
    return this.#restBytes === 0 ? NO_LINES : this.#linesOf(this.#take());
  }

  #complete(bytes: Buffer): Lines {
    if (this.#restBytes === 0) return this.#linesOf(bytes);
    this.#keep(bytes);
    return this.#linesOf(this.#take());
  }

  #linesOf(bytes: Buffer): Lines {
    const isStart = this.#isStart;
    this.#isStart = false;
    return linesOf(bytes, { isStart });
  }

  #keep(bytes: Buffer): void {
    const needed = this.#restBytes + bytes.length;
    if (needed > this.#rest.length) {
      let roomBytes = LINE_BYTES_MIN;
      while (roomBytes < needed) roomBytes *= 2;
      const larger = Buffer.allocUnsafeSlow(roomBytes);
      this.#rest.copy(larger, 0, 0, this.#restBytes);
      this.#rest = larger;
    }
    this.#restBytes += bytes.copy(this.#rest, this.#restBytes);
  }

  #take(): Buffer {
    const bytes = this.#rest.subarray(0, this.#restBytes);
    this.#rest = Buffer.alloc(0);
    this.#restBytes = 0;
    return bytes;
  }
}

const NO_LINES: Lines = { lines: [] };

interface Position {
  /** The bytes begin the body. */
  readonly isStart: boolean;
}

/** Of whole lines. */
export function linesOf(bytes: Buffer, position: Position): Lines {
  const text = utf8Of(bytes, position);
  return text === undefined
    ? linesBeforeFault(bytes, position)
    : { lines: trimmed(text.split("\n")) };
}

function linesBeforeFault(bytes: Buffer, { isStart }: Position): Lines {
  const lines: string[] = [];
  for (let start = 0; start < bytes.length; ) {
    const feed = bytes.indexOf(LINE_FEED, start);
    const end = feed < 0 ? bytes.length : feed;
    const line = utf8Of(bytes.subarray(start, end), { isStart: isStart && start === 0 });
    if (line === undefined) return { lines: trimmed(lines), fault: "not UTF-8" };
    lines.push(line);
    start = end + 1;
  }
  return { lines: trimmed(lines) };
}

/** Only JSON's white space: String.trim would also remove a byte order mark of any line. */
function trimmed(lines: readonly string[]): readonly string[] {
  return lines.map((line) => line.replace(AROUND, "")).filter((line) => line !== "");
}

const AROUND = /^[ \t\r]+|[ \t\r]+$/g;
