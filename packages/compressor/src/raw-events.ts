/**
 * The `rawEvent` of fragments that carry one each: the message of a model or framework from which the
 * fragment was made. Those of one text have one form and differ in a few strings, numbers or literals,
 * mostly in one, which repeats the `delta`. A row keeps the `rawEvent` of its first fragment in its
 * payload, and the others as what differs from it:
 *
 *   {"author":"a","text":"Hel","at":7}    place 1: 2 times the delta
 *   {"author":"a","text":"lo, ","at":7}   place 2: once the same, then a literal, which keeps no unit
 *   {"author":"a","text":"you","at":8}             of the value before: "8"
 *
 * A place is a string that is no key, a number, true, false or null of the first `rawEvent`; places
 * are counted in the order of the text. Each place that differs anywhere has a list of steps, which
 * give its value in every other fragment. The last two bits of a step are its kind, and the rest is
 * a count (proto/ambient/v1/events.proto).
 */
import type { TextSpan } from "@session-ledger/agui/spans";
import { type Gaps, gapsOf } from "./frame.ts";
import { isScalar, placesOf, RawFrame, type RawPieces } from "./raw-frame.ts";
import { isHigh, isLow, type ScannedText, utf8Bytes } from "./text.ts";
import type { VarintReader } from "./varint.ts";

/** The message `RawEvents`. */
export interface RawEvents {
  /** As those of an index without it. */
  readonly lengths: readonly number[];
  /** For each place its distance from the end of the place before, and its steps. */
  readonly steps: readonly number[];
  /** The texts of all literals, one after the other. */
  readonly texts: string;
}

/** Places of a row: with more, the row ends. */
const PLACES_MAX = 32;
/** UTF-16 units of a payload: a larger one begins a row. So the last values of all places are small. */
const PAYLOAD_UNITS_MAX = 65_536;
/** Bytes of steps and literals after which a row ends. */
const STEPS_BYTES_MAX = 65_536;
/** The literals of a row: those of its last fragment come on top, at three bytes a unit. */
export const TEXTS_BYTES_MAX = STEPS_BYTES_MAX + 3 * PAYLOAD_UNITS_MAX;

const SAME = 0;
const DELTA = 1;
const LITERAL = 2;
const KIND_BITS = 2;
const KIND_MASK = 3;

/** The differences between the fragments of a row in progress. */
export class RawWriter {
  readonly #first: string;
  readonly #gaps: Gaps;
  readonly #places: readonly TextSpan[];
  /** With a gap at every place: the form that all fragments must have. */
  readonly #form: RawFrame;
  /** Of the places that differ, in order. */
  #columns: readonly PlaceValues[] = [];
  #frame: RawFrame | undefined;
  #events: number;
  #units: number;

  /** `first` begins the row, which already has `events` events, with its `rawEvent`. */
  constructor(first: string, events: number) {
    this.#first = first;
    this.#gaps = gapsOf(first);
    this.#places = placesOf(first, this.#gaps.rawEvent);
    this.#form = new RawFrame(first, this.#gaps, this.#places);
    this.#events = events;
    this.#units = events * first.length;
  }

  /** Undefined when the payload does not fit the row; then nothing has changed. */
  match(payload: string): RawPieces | undefined {
    if (payload.length > PAYLOAD_UNITS_MAX) return undefined;
    return this.#frame?.match(payload) ?? this.#widen(payload);
  }

  /** Not fewer than the units of all payloads of the row. */
  get units(): number {
    return this.#units;
  }

  get isFull(): boolean {
    return this.#columns.reduce((sum, { bytes }) => sum + bytes, 0) >= STEPS_BYTES_MAX;
  }

  /** The event of a match joins the row. */
  push({ delta, values }: RawPieces, payloadUnits: number): void {
    for (const [at, column] of this.#columns.entries()) column.push(values[at] ?? "", delta);
    this.#events += 1;
    this.#units += payloadUnits;
  }

  close(): Omit<RawEvents, "lengths"> {
    let from = 0;
    const lists = this.#columns.map(({ place, steps }) => {
      const distance = place - from;
      from = place + 1;
      return [distance, ...steps];
    });
    return { steps: lists.flat(), texts: this.#columns.map(({ texts }) => texts).join("") };
  }

  /** The form has the payload's other values at more places. */
  #widen(payload: string): RawPieces | undefined {
    const pieces = this.#form.match(payload);
    if (pieces === undefined) return undefined;
    const { values } = pieces;
    const byPlace = new Map(this.#columns.map((column) => [column.place, column]));
    const columns = this.#places.flatMap(({ start, end }, place) => {
      const value = this.#first.slice(start, end);
      if (!byPlace.has(place) && values[place] === value) return [];
      return [byPlace.get(place) ?? new PlaceValues(place, { value, events: this.#events - 1 })];
    });
    if (columns.length > PLACES_MAX) return undefined;
    this.#columns = columns;
    const spans = this.#places.filter((_, place) => columns.some((one) => one.place === place));
    this.#frame = new RawFrame(this.#first, this.#gaps, spans);
    return { ...pieces, values: columns.map(({ place }) => values[place] ?? "") };
  }
}

/** The values of one place. */
class PlaceValues {
  readonly place: number;
  bytes = 0;
  readonly #numbers: number[] = [];
  readonly #texts: string[] = [];
  #value: string;
  #kind = SAME;
  #count: number;

  /** `events` events after the first had its value. */
  constructor(
    place: number,
    { value, events }: { readonly value: string; readonly events: number },
  ) {
    this.place = place;
    this.#value = value;
    this.#count = events;
  }

  push(value: string, delta: ScannedText | undefined): void {
    const kind =
      value === (delta && `"${delta.spelled}"`) ? DELTA : value === this.#value ? SAME : LITERAL;
    if (kind !== this.#kind) {
      this.#endRun();
      this.#kind = kind;
    }
    if (kind === LITERAL) this.#literal(value);
    else this.#count += 1;
    if (kind !== SAME) this.#value = kind === LITERAL ? copyOf(value) : value;
  }

  get steps(): readonly number[] {
    this.#endRun();
    return this.#numbers;
  }

  get texts(): string {
    return this.#texts.join("");
  }

  #literal(value: string): void {
    const { prefix, suffix } = commonEnds(this.#value, value);
    const text = copyOf(value.slice(prefix, value.length - suffix));
    this.#add((text.length << KIND_BITS) | LITERAL, prefix, suffix);
    this.#texts.push(text);
    this.bytes += utf8Bytes(text);
  }

  #endRun(): void {
    if (this.#count > 0) this.#add((this.#count << KIND_BITS) | this.#kind);
    this.#count = 0;
  }

  #add(...numbers: readonly number[]): void {
    this.#numbers.push(...numbers);
    this.bytes += NUMBER_BYTES * numbers.length;
  }
}

/** Of a number of a step, which is below 2^21 in nearly every row. */
const NUMBER_BYTES = 3;

/** A substring of V8 keeps its whole source alive; a joined string does not. */
function copyOf(text: string): string {
  return [text.slice(0, 1), text.slice(1)].join("");
}

/** The units that two texts have in common at both ends, without parting a surrogate pair. */
function commonEnds(
  before: string,
  value: string,
): { readonly prefix: number; readonly suffix: number } {
  const most = Math.min(before.length, value.length);
  let prefix = 0;
  while (prefix < most && before.charCodeAt(prefix) === value.charCodeAt(prefix)) prefix += 1;
  if (isHigh(value.charCodeAt(prefix - 1))) prefix -= 1;
  let suffix = 0;
  while (suffix < most - prefix && unitBefore(before, suffix) === unitBefore(value, suffix))
    suffix += 1;
  if (isLow(value.charCodeAt(value.length - suffix))) suffix -= 1;
  return { prefix, suffix };
}

function unitBefore(text: string, end: number): number {
  return text.charCodeAt(text.length - 1 - end);
}

/** An encoded message `RawEvents`. */
export interface EncodedRawEvents {
  readonly lengths: VarintReader;
  readonly steps: VarintReader;
  readonly texts: string;
}

/** The values of the places, event by event. Throws a RangeError for an index that does not fit. */
export class RawReader {
  readonly values: string[];
  readonly #frame: RawFrame;
  readonly #texts: string;
  readonly #columns: readonly PlaceSteps[];

  constructor(payload: string, gaps: Gaps, { steps, texts, eventCount }: StoredSteps) {
    const places = placesOf(payload, gaps.rawEvent);
    const spans: TextSpan[] = [];
    const columns: PlaceSteps[] = [];
    let place = 0;
    let textAt = 0;
    while (!steps.isAtEnd) {
      if (columns.length === PLACES_MAX) throw misfit(`more than ${PLACES_MAX} places`);
      place += steps.uint32();
      const span = places[place];
      if (span === undefined) throw misfit("a missing place");
      spans.push(span);
      columns.push({ steps: steps.copy(), textAt, kind: SAME, count: 0 });
      textAt += skipSteps(steps, eventCount - 1);
      place += 1;
    }
    if (textAt !== texts.length) throw misfit("texts of another length");
    this.#frame = new RawFrame(payload, gaps, spans);
    this.values = spans.map(({ start, end }) => payload.slice(start, end));
    this.#texts = texts;
    this.#columns = columns;
  }

  /** To the next event, with this spelled delta. */
  advance(delta: string | undefined): void {
    for (const [at, column] of this.#columns.entries()) {
      if (column.count === 0) {
        const step = column.steps.uint32();
        column.kind = step & KIND_MASK;
        column.count = step >>> KIND_BITS;
      }
      if (column.kind === LITERAL) {
        this.values[at] = this.#literal(column, this.values[at] ?? "");
        continue;
      }
      column.count -= 1;
      if (column.kind !== DELTA) continue;
      if (delta === undefined) throw misfit("the text of a payload without one");
      this.values[at] = `"${delta}"`;
    }
  }

  /** The payload of the event. */
  print(pieces: { readonly delta: string; readonly timestamp: string }): string {
    return this.#frame.print({ ...pieces, values: this.values });
  }

  #literal(column: PlaceSteps, before: string): string {
    const prefix = column.steps.uint32();
    const suffix = column.steps.uint32();
    if (prefix + suffix > before.length) throw misfit("more of a value than it has");
    const start = column.textAt;
    column.textAt += column.count;
    column.count = 0;
    const text = this.#texts.slice(start, column.textAt);
    const value = before.slice(0, prefix) + text + before.slice(before.length - suffix);
    if (!isScalar(value)) throw misfit("a value that is no string, number or literal of JSON");
    return value;
  }
}

interface StoredSteps {
  readonly steps: VarintReader;
  readonly texts: string;
  readonly eventCount: number;
}

interface PlaceSteps {
  readonly steps: VarintReader;
  textAt: number;
  kind: number;
  count: number;
}

/** Reads the steps of `values` values, and returns the units of their literals. */
function skipSteps(steps: VarintReader, values: number): number {
  let units = 0;
  for (let left = values; left > 0; ) {
    const step = steps.uint32();
    const count = step >>> KIND_BITS;
    const kind = step & KIND_MASK;
    if (kind === LITERAL) {
      units += count;
      steps.uint32();
      steps.uint32();
      left -= 1;
    } else {
      if (kind > LITERAL || count === 0 || count > left) throw misfit("an unknown step");
      left -= count;
    }
  }
  return units;
}

function misfit(what: string): RangeError {
  return new RangeError(`the fragment index has ${what}`);
}
