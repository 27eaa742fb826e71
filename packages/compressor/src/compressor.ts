/**
 * Turns raw events into rows, one after the other. Consecutive fragments of one text become one
 * row; every other event becomes a separate row. No event is lost, and no event changes its
 * place.
 *
 *                 joins the open group
 *            ┌────────────────────────────┐
 *   push ────┤ a fragment that does not ──┼──► closes it, and opens one
 *            └ any other event ───────────┴──► closes it, and is a row
 *
 * A fragment joins when it has the group's type, and its payload has the same bytes except the
 * values of `delta` and `timestamp`, and values inside of its `rawEvent` (raw-events.ts). Those bytes
 * include the ids of its message, tool call and subagent, and every unknown field: payloads that
 * differ anywhere else are never merged.
 *
 * A limit also closes a group: text, events, bytes, age. It has no timer and no clock. The
 * caller passes the time. The caller must flush at `dueAtMs` when no event comes, at the end of the
 * stream, and after a failure. The compressor holds at most one group.
 */
import { EVENT_COUNT_MAX, isCompressible } from "@session-ledger/agui/catalogue";
import { readPayload } from "@session-ledger/agui/payload";
import { EXPANDED_BYTES_MAX, type FragmentIndex } from "./fragments.ts";
import { type Frame, type Framed, framedOf, type Pieces } from "./frame.ts";
import { RawWriter } from "./raw-events.ts";
import type { RawPieces } from "./raw-frame.ts";
import {
  PAIR_SAVES_BYTES,
  type ScannedText,
  UNIT_BYTES_MAX,
  utf8Bytes,
  withEscapedHalves,
} from "./text.ts";

export class Compressor<E extends IncomingEvent = IncomingEvent> {
  readonly #limits: CompressorLimits;
  #group: FragmentGroup<E> | undefined;
  #dueAtMs = 0;

  /** Missing limits are taken from COMPRESSOR_LIMITS. */
  constructor(limits: Partial<CompressorLimits> = {}) {
    this.#limits = checkedLimits(limits);
  }

  /**
   * Returns the rows that this event completed, in order, at most two. `nowMs`: of a monotonic
   * clock; a group that is due by then is closed first. `framed`: an earlier result for this same
   * payload.
   */
  push(event: E, nowMs: number, framed?: Framed): readonly CompressedRow<E>[] {
    const payload = wellFormed(event.payload);
    const known = payload === event.payload ? framed : undefined;
    const merges = event.merges !== false;
    const group = this.#group;
    const isYoung = nowMs < this.#dueAtMs;
    if (merges && group !== undefined && isYoung && group.add(event, payload, known))
      return group.isFull ? this.#closeGroup() : NO_ROWS;
    const rows = this.#closeGroup();
    const opening = merges ? this.#openGroup(event, payload, known) : undefined;
    if (opening === undefined) return [...rows, singleRow(event, payload)];
    this.#group = opening;
    this.#dueAtMs = nowMs + this.#limits.maxAgeMs;
    return rows;
  }

  /** Closes the open group, if any. */
  flush(): CompressedRow<E> | undefined {
    const row = this.#group?.close();
    this.#group = undefined;
    return row;
  }

  /** When the open group must be flushed, on the clock of `push`; undefined: none is open. */
  get dueAtMs(): number | undefined {
    return this.#group && this.#dueAtMs;
  }

  #openGroup(event: E, payload: string, known: Framed | undefined): FragmentGroup<E> | undefined {
    if (!isCompressible(event.eventType)) return undefined;
    const framed = known ?? framedOf(payload);
    return framed && FragmentGroup.open(event, { ...framed, payload }, this.#limits);
  }

  #closeGroup(): readonly CompressedRow<E>[] {
    const row = this.flush();
    return row === undefined ? NO_ROWS : [row];
  }
}

const NO_ROWS: readonly never[] = [];

/** Half a surrogate pair would reach protobuf, and PostgreSQL, as U+FFFD; an escape keeps it. */
function wellFormed(payload: string): string {
  if (payload.isWellFormed() || !readPayload(payload).ok) return payload;
  return withEscapedHalves(payload);
}

/** A raw event before compression. */
export interface IncomingEvent {
  readonly eventType: string;
  /** A JSON object in its producer's spelling; any other text becomes a separate row. */
  readonly payload: string;
  /** Microseconds since the epoch. */
  readonly createdAtMicros: bigint;
  /** False: the event becomes a separate row. Otherwise its type decides. */
  readonly merges?: boolean;
}

/** One event, or consecutive fragments of one text. */
export interface CompressedRow<E extends IncomingEvent = IncomingEvent> {
  readonly eventType: string;
  /** The payload of the first event, with the joined deltas. */
  readonly payload: string;
  /** The number of raw events that the row stands for. */
  readonly eventCount: number;
  /** The time of the first event; microseconds since the epoch. */
  readonly createdAtMicros: bigint;
  /** The latest of its events' times, because clocks step back; undefined for a single event. */
  readonly completedAtMicros: bigint | undefined;
  /** The index that restores the events; undefined for a single event. */
  readonly fragments: FragmentIndex | undefined;
  /** The first and the last event, so that callers can attach their own fields to events. */
  readonly first: E;
  readonly last: E;
}

function singleRow<E extends IncomingEvent>(event: E, payload: string): CompressedRow<E> {
  const { eventType, createdAtMicros } = event;
  return {
    eventType,
    payload,
    eventCount: 1,
    createdAtMicros,
    completedAtMicros: undefined,
    fragments: undefined,
    first: event,
    last: event,
  };
}

/**
 * Payload units that a group's pieces may keep alive: V8 makes a substring of 13 units or more a
 * view. Above it the pieces are copied: 560 fragments of 18 units, each from a payload of 64 KiB,
 * keep 0.24 MiB instead of 35.3 MiB (Node 24.21).
 */
const PINNED_UNITS_MAX = 65_536;

/** The payload that begins a group, taken apart. */
interface GroupStart extends Framed {
  readonly payload: string;
}

/** The fragments of the row in progress: at least one. */
class FragmentGroup<E extends IncomingEvent> {
  readonly #frame: Frame;
  readonly #first: E;
  readonly #firstPayload: string;
  #last: E;
  #latestMicros: bigint;
  readonly #textBytesMax: number;
  readonly #spelledBytesMax: number;
  readonly #eventsMax: number;
  #texts: string[] = [];
  #pinnedUnits = 0;
  #textBytes = 0;
  #spelledBytes = 0;
  #endsHigh = false;
  readonly #lengths: number[] = [];
  readonly #firstMs: Time | undefined;
  #lastMs: Time | undefined;
  readonly #timestampDeltasMs: bigint[] = [];
  /** Undefined until a `rawEvent` differs from the first. */
  #raw: RawWriter | undefined;

  /** Undefined when no other event can join: the event is a separate row. */
  static open<E extends IncomingEvent>(
    event: E,
    opening: GroupStart,
    limits: CompressorLimits,
  ): FragmentGroup<E> | undefined {
    const { payload, pieces } = opening;
    const group = new FragmentGroup(event, opening, limits);
    if (group.#eventsMax < 2 || !group.#admits(pieces.delta)) return undefined;
    group.#take(event, { payload, pieces });
    return group;
  }

  private constructor(first: E, { payload, frame, pieces }: GroupStart, limits: CompressorLimits) {
    const frameBytes = utf8Bytes(payload) - (pieces.delta?.spelledBytes ?? 0);
    this.#frame = frame;
    this.#first = first;
    this.#firstPayload = payload;
    this.#last = first;
    this.#latestMicros = first.createdAtMicros;
    this.#firstMs = pieces.timestampMs;
    this.#lastMs = pieces.timestampMs;
    this.#textBytesMax = limits.textBytesMax;
    this.#spelledBytesMax = limits.payloadBytesMax - frameBytes;
    this.#eventsMax = Math.min(limits.eventsMax, Math.floor(EXPANDED_BYTES_MAX / frameBytes));
  }

  get isFull(): boolean {
    const raw = this.#raw;
    if (this.#lengths.length >= this.#eventsMax) return true;
    return raw !== undefined && (raw.isFull || UNIT_BYTES_MAX * raw.units > RAW_BYTES_MAX);
  }

  /** False when the event does not fit the group or its limits; then the group is unchanged. */
  add(event: E, payload: string, framed: Framed | undefined): boolean {
    if (event.eventType !== this.#first.eventType) return false;
    const pieces = this.#match(payload, framed);
    if (pieces === undefined || !this.#admits(pieces.delta)) return false;
    if (this.#lastMs !== undefined && pieces.timestampMs !== undefined) {
      const deltaMs = difference(pieces.timestampMs, this.#lastMs);
      if (BigInt.asIntN(64, deltaMs) !== deltaMs) return false;
      this.#timestampDeltasMs.push(deltaMs);
      this.#lastMs = pieces.timestampMs;
    }
    this.#take(event, { payload, pieces });
    return true;
  }

  close(): CompressedRow<E> {
    const first = this.#first;
    if (this.#lengths.length === 1) return singleRow(first, this.#firstPayload);
    const delta = this.#texts.join("");
    const timestamp = this.#firstMs === undefined ? "" : String(this.#firstMs);
    const lengths = this.#lengths;
    const timestampDeltasMs = this.#timestampDeltasMs;
    const rawEvents = this.#raw && { lengths, ...this.#raw.close() };
    return {
      eventType: first.eventType,
      payload: this.#frame.print({ delta, timestamp }),
      eventCount: this.#lengths.length,
      createdAtMicros: first.createdAtMicros,
      completedAtMicros: this.#latestMicros,
      fragments:
        rawEvents === undefined
          ? { lengths, timestampDeltasMs }
          : { lengths: [], timestampDeltasMs, rawEvents },
      first,
      last: this.#last,
    };
  }

  #match(payload: string, framed: Framed | undefined): Pieces | RawPieces | undefined {
    if (this.#raw !== undefined) return this.#raw.match(payload);
    const pieces = framed?.frame === this.#frame ? framed.pieces : this.#frame.match(payload);
    if (pieces !== undefined || !payload.includes('"rawEvent"')) return pieces;
    const raw = new RawWriter(this.#firstPayload, this.#lengths.length);
    const rawPieces = raw.match(payload);
    if (rawPieces !== undefined) this.#raw = raw;
    return rawPieces;
  }

  #admits(delta: ScannedText | undefined): boolean {
    if (delta === undefined) return this.#spelledBytesMax >= 0;
    return (
      this.#textBytes + this.#added(delta) <= this.#textBytesMax &&
      this.#spelledBytes + delta.spelledBytes <= this.#spelledBytesMax
    );
  }

  /** Two halves of a pair make a character of four bytes. */
  #added({ bytes, startsLow }: ScannedText): number {
    return this.#endsHigh && startsLow ? bytes - PAIR_SAVES_BYTES : bytes;
  }

  #take(event: E, { payload, pieces }: { payload: string; pieces: Pieces | RawPieces }): void {
    this.#last = event;
    if (this.#raw !== undefined && "values" in pieces) this.#raw.push(pieces, payload.length);
    if (event.createdAtMicros > this.#latestMicros) this.#latestMicros = event.createdAtMicros;
    const { delta } = pieces;
    if (delta === undefined) {
      this.#lengths.push(0);
      return;
    }
    this.#lengths.push(delta.units + 1);
    if (delta.units === 0) return;
    this.#textBytes += this.#added(delta);
    this.#spelledBytes += delta.spelledBytes;
    this.#endsHigh = delta.endsHigh;
    this.#appendText(delta.spelled, payload.length);
  }

  #appendText(text: string, payloadUnits: number): void {
    this.#texts.push(text);
    this.#pinnedUnits += payloadUnits;
    if (this.#pinnedUnits <= PINNED_UNITS_MAX) return;
    this.#texts = [this.#texts.join("")];
    this.#pinnedUnits = 0;
  }
}

/** The payloads of a row with `rawEvents`; one more is far smaller than the rest. */
const RAW_BYTES_MAX = EXPANDED_BYTES_MAX - 1024 * 1024;

type Time = number | bigint;

function difference(a: Time, b: Time): bigint {
  return typeof a === "number" && typeof b === "number" ? BigInt(a - b) : BigInt(a) - BigInt(b);
}

/** The limits that close a group of fragments although the next event could join it. */
export interface CompressorLimits {
  /** UTF-8 bytes of a row's text, the joined deltas. A larger fragment is a separate row. */
  readonly textBytesMax: number;
  /** From the arrival of a group's first fragment: the longest delay for a watcher. */
  readonly maxAgeMs: number;
  /** Raw events of a row; at most EVENT_COUNT_MAX. */
  readonly eventsMax: number;
  /** UTF-8 bytes of a merged row's payload: a receiver of the events must accept the row. */
  readonly payloadBytesMax: number;
}

export const COMPRESSOR_LIMITS: CompressorLimits = {
  textBytesMax: 10 * 1024,
  maxAgeMs: 250,
  eventsMax: 65_536, // With this limit an index is below a mebibyte, for any lengths and times.
  payloadBytesMax: 1024 * 1024,
};

/** Invalid limits are a mistake in the program, and not in an event. */
function checkedLimits(limits: Partial<CompressorLimits>): CompressorLimits {
  const { textBytesMax, maxAgeMs, eventsMax, payloadBytesMax } = {
    ...COMPRESSOR_LIMITS,
    ...limits,
  };
  const isLimit = textBytesMax >= 0 && maxAgeMs >= 0 && payloadBytesMax >= 0;
  if (!isLimit) throw new RangeError("limits of a compressor are numbers from 0");
  if (!(eventsMax >= 1 && eventsMax <= EVENT_COUNT_MAX))
    throw new RangeError(`eventsMax must be from 1 to ${EVENT_COUNT_MAX}, but is ${eventsMax}`);
  return { textBytesMax, maxAgeMs, eventsMax, payloadBytesMax };
}
