import type { TextSpan } from "@session-ledger/agui/spans";

/**
 * Scans the body of a JSON string, unit by unit: its end, its size as spelled, and the size of its
 * value. It is one pass, because it runs once for every token of every agent.
 */
export interface ScannedText {
  /** The spelling between its quotes. */
  readonly spelled: string;
  /** The place of the closing quote in the scanned text. */
  readonly end: number;
  /** UTF-16 units of the value. */
  readonly units: number;
  /** UTF-8 bytes of the value; half a surrogate pair counts three, as it would in WTF-8. */
  readonly bytes: number;
  /** UTF-8 bytes of the spelling. */
  readonly spelledBytes: number;
  /** True when its first unit is the second half of a pair. */
  readonly startsLow: boolean;
  /** True when its last unit is the first half of a pair, which the next text may complete. */
  readonly endsHigh: boolean;
}

const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const SHORT_ESCAPES = new Set(Array.from('"\\/bfnrt', (letter) => letter.charCodeAt(0)));
const NOTHING = -1;

/** Units that are one byte each and stand for themselves: most text, skipped in one step. */
const PLAIN_TEXT = /[ !#-[\]-\u007f]*/y;

/** From the unit after the opening quote; undefined: no JSON string. No raw halves of pairs. */
export function scanText(text: string, start: number): ScannedText | undefined {
  PLAIN_TEXT.lastIndex = start;
  PLAIN_TEXT.test(text);
  const end = PLAIN_TEXT.lastIndex;
  if (text.charCodeAt(end) !== QUOTE) return walkText(text, start);
  const units = end - start;
  return {
    spelled: text.slice(start, end),
    end,
    units,
    bytes: units,
    spelledBytes: units,
    startsLow: false,
    endsHigh: false,
  };
}

function walkText(text: string, start: number): ScannedText | undefined {
  let at = start;
  let units = 0;
  let bytes = 0;
  let spelledBytes = 0;
  let first = NOTHING;
  let last = NOTHING;
  for (;;) {
    let unit = text.charCodeAt(at);
    if (unit === QUOTE) break;
    if (unit === BACKSLASH) {
      const spelling = text.charCodeAt(at + 1) === LETTER_U ? 6 : 2;
      unit = escapedUnit(text, at + 1);
      if (unit === NOTHING) return undefined;
      at += spelling;
      spelledBytes += spelling;
      bytes += unit < 0x80 ? 1 : bytesAfter(last, unit);
    } else {
      if (!(unit >= SPACE)) return undefined; // A control character, or the end of the text.
      at += 1;
      const size = unit < 0x80 ? 1 : bytesAfter(last, unit);
      bytes += size;
      spelledBytes += size;
    }
    if (units === 0) first = unit;
    last = unit;
    units += 1;
  }
  return {
    spelled: text.slice(start, at),
    end: at,
    units,
    bytes,
    spelledBytes,
    startsLow: isLow(first),
    endsHigh: isHigh(last),
  };
}

/** The unit of an escape, read after its backslash; for short ones, any unit of one byte. */
function escapedUnit(text: string, at: number): number {
  const letter = text.charCodeAt(at);
  if (letter !== LETTER_U) return SHORT_ESCAPES.has(letter) ? letter : NOTHING;
  let unit = 0;
  for (let next = at + 1; next < at + 5; next += 1) {
    const digit = hexDigit(text.charCodeAt(next));
    if (digit === NOTHING) return NOTHING;
    unit = unit * 16 + digit;
  }
  return unit;
}

/** The bytes that a second half of a pair saves after its first half. */
export const PAIR_SAVES_BYTES = 2;

function bytesAfter(previous: number, unit: number): number {
  if (unit < 0x800) return 2;
  return isLow(unit) && isHigh(previous) ? 3 - PAIR_SAVES_BYTES : 3;
}

export function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

export function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

function hexDigit(unit: number): number {
  if (unit >= 0x30 && unit <= 0x39) return unit - 0x30;
  const lower = unit | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : NOTHING;
}

export const UNIT_BYTES_MAX = 3;

const WIDE = /[\u0080-\uffff]/;

/** UTF-8 bytes of a text without halves of pairs. */
export function utf8Bytes(text: string): number {
  if (!WIDE.test(text)) return text.length;
  let bytes = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    // Each half of a surrogate pair is two of the four bytes.
    if (unit >= 0x80) bytes += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return bytes;
}

/** The same JSON with each half of a pair as an escape, because it has no UTF-8 form. */
export function withEscapedHalves(json: string): string {
  return json.isWellFormed() ? json : json.replaceAll(/\p{Surrogate}/gu, withEscape);
}

function withEscape(half: string): string {
  return `\\u${half.charCodeAt(0).toString(16)}`;
}

/** Cuts the text of a JSON string into pieces of a given number of UTF-16 units. */
export class Texts {
  readonly #payload: string;
  #at: number;
  /** The place of the next escape; before it, each unit of the value is a unit of its text. */
  #escape: number;

  constructor(payload: string, { start }: TextSpan) {
    this.#payload = payload;
    this.#at = start;
    this.#escape = this.#nextEscape();
  }

  next(units: number): string {
    const start = this.#at;
    this.skip(units);
    return withEscapedHalves(this.#payload.slice(start, this.#at));
  }

  skip(units: number): void {
    let left = units;
    while (this.#escape < this.#at + left) {
      left -= this.#escape - this.#at + 1; // The escape is one unit.
      const isLong = this.#payload.charCodeAt(this.#escape + 1) === LETTER_U;
      this.#at = this.#escape + (isLong ? 6 : 2); // \u0061, \n
      this.#escape = this.#nextEscape();
    }
    this.#at += left;
  }

  #nextEscape(): number {
    const found = this.#payload.indexOf("\\", this.#at);
    return found === -1 ? Number.POSITIVE_INFINITY : found;
  }
}
