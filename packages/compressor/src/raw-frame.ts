/**
 * A payload without the values of its `delta`, of its `timestamp`, and of places in its `rawEvent`:
 * what all fragments of a row share whose `rawEvent` differ. See Frame, and raw-events.ts.
 */
import { endOfString, type TextSpan } from "@session-ledger/agui/spans";
import { type Gaps, isAt, type Pieces, readInteger } from "./frame.ts";
import { type ScannedText, scanText } from "./text.ts";

export interface RawPieces extends Pieces {
  /** The value of each place. */
  readonly values: readonly string[];
}

type FrameGap = TextSpan & { readonly of: "delta" | "timestamp" | "place" };

/** A payload without its delta, its timestamp and the values of places; see Frame. */
export class RawFrame {
  readonly #gaps: readonly FrameGap[];
  /** The texts around the gaps. */
  readonly #parts: readonly string[];

  constructor(payload: string, { delta, timestamp }: Gaps, places: readonly TextSpan[]) {
    const gaps: FrameGap[] = places.map((span) => ({ ...span, of: "place" }));
    if (delta !== undefined) gaps.push({ ...delta, of: "delta" });
    if (timestamp !== undefined) gaps.push({ ...timestamp, of: "timestamp" });
    this.#gaps = gaps.toSorted((a, b) => a.start - b.start);
    this.#parts = [0, ...this.#gaps.map(({ end }) => end)].map((from, at) =>
      payload.slice(from, this.#gaps[at]?.start),
    );
  }

  /** As Frame.match, and for the same reason without a JSON parser: a place holds a whole value. */
  match(payload: string): RawPieces | undefined {
    let delta: ScannedText | undefined;
    let timestampMs: Pieces["timestampMs"];
    const values: string[] = [];
    let at = 0;
    for (let index = 0; index < this.#gaps.length; index += 1) {
      const part = this.#parts[index] ?? "";
      if (!isAt(payload, at, part)) return undefined;
      at += part.length;
      const of = this.#gaps[index]?.of;
      if (of === "delta") {
        delta = scanText(payload, at);
        if (delta === undefined) return undefined;
        at = delta.end;
      } else if (of === "timestamp") {
        const read = readInteger(payload, at);
        if (read === undefined) return undefined;
        timestampMs = read.value;
        at = read.end;
      } else {
        const end = endOfScalar(payload, at);
        if (end === undefined) return undefined;
        values.push(payload.slice(at, end));
        at = end;
      }
    }
    const tail = this.#parts.at(-1) ?? "";
    const isSame = payload.length - at === tail.length && isAt(payload, at, tail);
    return isSame ? { delta, timestampMs, values } : undefined;
  }

  print({ delta, timestamp, values }: RawTexts): string {
    let payload = this.#parts[0] ?? "";
    let place = 0;
    for (let index = 0; index < this.#gaps.length; index += 1) {
      const of = this.#gaps[index]?.of;
      payload += of === "delta" ? delta : of === "timestamp" ? timestamp : values[place++];
      payload += this.#parts[index + 1] ?? "";
    }
    return payload;
  }
}

interface RawTexts {
  readonly delta: string;
  readonly timestamp: string;
  readonly values: readonly string[];
}

const LITERAL_VALUE = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null)/y;

/** Of the JSON string, number or literal at `at`; undefined without one. */
function endOfScalar(text: string, at: number): number | undefined {
  if (text.charCodeAt(at) === QUOTE) {
    const body = scanText(text, at + 1);
    return body && body.end + 1;
  }
  LITERAL_VALUE.lastIndex = at;
  return LITERAL_VALUE.test(text) ? LITERAL_VALUE.lastIndex : undefined;
}

export function isScalar(text: string): boolean {
  return text.isWellFormed() && endOfScalar(text, 0) === text.length;
}

const QUOTE = 0x22;
const COLON = 0x3a;
/** The text between values, and between the parts of an object or list. */
const BETWEEN = /[\s,:[\]{}]*/y;
const SPACE = /\s*/y;

/** All places of a `rawEvent`; none when it is no object and no list. */
export function placesOf(payload: string, rawEvent: TextSpan | undefined): readonly TextSpan[] {
  if (rawEvent === undefined || !/[[{]/.test(payload.charAt(rawEvent.start))) return [];
  const places: TextSpan[] = [];
  for (let at = after(BETWEEN, payload, rawEvent.start); at < rawEvent.end; ) {
    let end = at;
    if (payload.charCodeAt(at) === QUOTE) {
      end = endOfString(payload, at);
      const isKey = payload.charCodeAt(after(SPACE, payload, end)) === COLON;
      if (!isKey) places.push({ start: at, end });
    } else {
      end = endOfScalar(payload, at) ?? payload.length;
      places.push({ start: at, end });
    }
    at = after(BETWEEN, payload, end);
  }
  return places;
}

function after(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}
