/**
 * Restores the events of a merged row, one after the other. No JSON is printed again: the row's
 * payload is taken apart once, around the values of `delta` and `timestamp`. Each event is that
 * frame with its own piece of the text and its own time in it.
 *
 *   {"type":"…","delta":"Hello 😀","timestamp":17}      lengths 6 2 2, timestamp deltas 4 0
 *   └──── head ───────┘└─ pieces ─┘└─ middle ──┘└┘└ tail
 *
 * The pieces are cut out of the spelled delta, so an escape stays the same escape, and an event has
 * its original bytes wherever the join preserved them. Only the halves of a split surrogate pair are
 * written as escapes, because half a pair has no UTF-8 form.
 *
 * A row may stand for a million events and expand to 64 MiB, so the result is a generator and not a
 * list. Between two events the generator holds the row and a few numbers, and it reads an encoded
 * index step by step.
 */
import type { TextSpan } from "@session-ledger/agui/spans";
import { encodeFragments, type FragmentIndex, readFragments } from "./fragments.ts";
import { Frame, gapsOf } from "./frame.ts";
import { RawReader } from "./raw-events.ts";
import { Texts } from "./text.ts";

export interface ExpandableRow {
  /** The number of its first event. */
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
  readonly eventCount: number;
  /** The index, as numbers or as a stored `Fragments`; undefined: the row is returned whole. */
  readonly fragments: FragmentIndex | Uint8Array | undefined;
}

export interface RawEvent {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  /** The row's time, plus the distance of the event's own timestamp from the first one. */
  readonly createdAtMicros: bigint;
}

/**
 * The row's events with a number above `afterSeq`, in order. A row without an index is one event
 * under its own number, for any event count. The index must fit, which checkFragments verifies.
 */
export function* expand(
  row: ExpandableRow,
  afterSeq = row.seq - 1n,
): Generator<RawEvent, void, undefined> {
  const { eventType, payload, createdAtMicros, eventCount, fragments } = row;
  if (fragments === undefined || eventCount === 1) {
    if (row.seq > afterSeq) yield { seq: row.seq, eventType, payload, createdAtMicros };
    return;
  }
  const index = readFragments(
    fragments instanceof Uint8Array ? fragments : encodeFragments(fragments),
  );
  const { rawEvents, timestampDeltasMs } = index;
  const { lengths } = rawEvents ?? index;
  const { delta, rawEvent, ...gaps } = gapsOf(payload);
  const timestamp = timestampDeltasMs.isAtEnd ? undefined : gaps.timestamp;
  const raw =
    rawEvents &&
    new RawReader(payload, { delta, timestamp, rawEvent }, { ...rawEvents, eventCount });
  const frame = new Frame(payload, { delta, timestamp });
  const texts = delta && new Texts(payload, delta);
  const times = timestamp && new EventTimes(payload, timestamp, createdAtMicros);
  let { seq } = row;
  for (let at = 0; at < eventCount; at += 1, seq += 1n) {
    if (at > 0) times?.advance(timestampDeltasMs.sint64());
    const units = lengths.uint32() - 1;
    let printed: string;
    if (raw === undefined) {
      if (seq <= afterSeq) {
        texts?.skip(units);
        continue;
      }
      printed = frame.print({ delta: texts?.next(units) ?? "", timestamp: times?.text ?? "" });
    } else {
      const text = texts?.next(units);
      if (at > 0) raw.advance(text);
      if (seq <= afterSeq) continue;
      printed = raw.print({ delta: text ?? "", timestamp: times?.text ?? "" });
    }
    yield {
      seq,
      eventType,
      payload: printed,
      createdAtMicros: times?.createdAtMicros ?? createdAtMicros,
    };
  }
}

/** The times of the events, in order; plain numbers as long as they are exact. */
class EventTimes {
  /** The text in the event's payload. */
  text: string;
  createdAtMicros: bigint;
  readonly #rowMicros: bigint;
  #timestampMs: Milliseconds;
  #sinceFirstMs: Milliseconds = 0;

  constructor(payload: string, { start, end }: TextSpan, rowMicros: bigint) {
    this.text = payload.slice(start, end);
    this.createdAtMicros = rowMicros;
    this.#rowMicros = rowMicros;
    const timestampMs = Number(this.text);
    this.#timestampMs = Number.isSafeInteger(timestampMs) ? timestampMs : BigInt(this.text);
  }

  advance(byMs: Milliseconds): void {
    if (byMs === 0 || byMs === 0n) return;
    this.#timestampMs = sum(this.#timestampMs, byMs);
    this.#sinceFirstMs = sum(this.#sinceFirstMs, byMs);
    this.text = String(this.#timestampMs);
    this.createdAtMicros = clamp(this.#rowMicros + BigInt(this.#sinceFirstMs) * 1_000n);
  }
}

type Milliseconds = number | bigint;

function sum(a: Milliseconds, b: Milliseconds): Milliseconds {
  if (typeof a === "number" && typeof b === "number") {
    const total = a + b;
    if (Number.isSafeInteger(total)) return total;
  }
  return BigInt(a) + BigInt(b);
}

/** The years 1 to 9999, as in the contract's timestamps; a payload may have any number. */
const MICROS_MIN = -62_135_596_800_000_000n;
const MICROS_MAX = 253_402_300_799_999_999n;

function clamp(micros: bigint): bigint {
  if (micros < MICROS_MIN) return MICROS_MIN;
  return micros > MICROS_MAX ? MICROS_MAX : micros;
}
