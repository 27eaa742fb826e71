/**
 * The fragment index of a merged row: the places of its fragments in the joined text, and their
 * times. A pushed index is checked before it is stored: a stored row is never rewritten.
 */
import { isCompressible } from "@session-ledger/agui/catalogue";
import { memberSpans, type TextSpan } from "@session-ledger/agui/spans";
import type { Violation } from "@session-ledger/base/errors";
import { gapsOf } from "./frame.ts";
import { type EncodedRawEvents, type RawEvents, RawReader, TEXTS_BYTES_MAX } from "./raw-events.ts";
import { Texts, UNIT_BYTES_MAX, utf8Bytes } from "./text.ts";
import { VarintReader, VarintWriter } from "./varint.ts";

/** The limit for the expansion of one row, so that it cannot exhaust a reader's memory. */
export const EXPANDED_BYTES_MAX = 64 * 1024 * 1024;

export interface FragmentIndex {
  /** UTF-16 units of each fragment's delta plus 1; 0 for a fragment without one. */
  readonly lengths: readonly number[];
  /** Each payload timestamp minus the previous one; empty where the payloads have none. */
  readonly timestampDeltasMs: readonly bigint[];
  /** For fragments with a `rawEvent` each; then it has the lengths, and `lengths` is empty. */
  readonly rawEvents?: RawEvents | undefined;
}

/** The messages `Fragments` and `RawEvents`; all fields have a length. (events.proto) */
const LENGTHS_TAG = (1 << 3) | 2;
const TIMESTAMP_DELTAS_TAG = (2 << 3) | 2;
const RAW_EVENTS_TAG = (3 << 3) | 2;
const STEPS_TAG = (2 << 3) | 2;
const TEXTS_TAG = (3 << 3) | 2;

/** The message `Fragments` in its one canonical encoding, which the service also stores. */
export function encodeFragments(index: FragmentIndex): Uint8Array {
  const { lengths, timestampDeltasMs, rawEvents } = index;
  const packedDeltas = new VarintWriter();
  for (const deltaMs of timestampDeltasMs) packedDeltas.sint64(deltaMs);
  return Uint8Array.from([
    ...listed(LENGTHS_TAG, packedField(lengths)),
    ...listed(TIMESTAMP_DELTAS_TAG, packedDeltas.bytes),
    ...(rawEvents === undefined ? [] : message(RAW_EVENTS_TAG, encodeRawEvents(rawEvents))),
  ]);
}

function encodeRawEvents({ lengths, steps, texts }: RawEvents): readonly number[] {
  return [
    ...listed(LENGTHS_TAG, packedField(lengths)),
    ...listed(STEPS_TAG, packedField(steps)),
    ...listed(TEXTS_TAG, [...new TextEncoder().encode(texts)]),
  ];
}

function packedField(numbers: readonly number[]): readonly number[] {
  const writer = new VarintWriter();
  for (const number of numbers) writer.uint32(number);
  return writer.bytes;
}

function listed(tag: number, bytes: readonly number[]): readonly number[] {
  return bytes.length === 0 ? [] : message(tag, bytes);
}

function message(tag: number, bytes: readonly number[]): readonly number[] {
  const writer = new VarintWriter();
  writer.uint32(tag);
  writer.uint32(bytes.length);
  return [...writer.bytes, ...bytes];
}

/** Throws a RangeError when the bytes are not such an encoding. */
export function decodeFragments(bytes: Uint8Array): FragmentIndex {
  const { lengths, timestampDeltasMs, rawEvents } = readFragments(bytes);
  const deltas: bigint[] = [];
  while (!timestampDeltasMs.isAtEnd) deltas.push(BigInt(timestampDeltasMs.sint64()));
  return {
    lengths: numbersOf(lengths),
    timestampDeltasMs: deltas,
    ...(rawEvents && {
      rawEvents: {
        lengths: numbersOf(rawEvents.lengths),
        steps: numbersOf(rawEvents.steps),
        texts: rawEvents.texts,
      },
    }),
  };
}

function numbersOf(list: VarintReader): readonly number[] {
  const numbers: number[] = [];
  while (!list.isAtEnd) numbers.push(list.uint32());
  return numbers;
}

/** The lists of an encoded index; each is read on demand. */
interface EncodedIndex {
  readonly lengths: VarintReader;
  readonly timestampDeltasMs: VarintReader;
  readonly rawEvents: EncodedRawEvents | undefined;
}

export function readFragments(bytes: Uint8Array): EncodedIndex {
  const parts = partsOf(new VarintReader(bytes), TAGS);
  const raw = parts.get(RAW_EVENTS_TAG);
  return {
    lengths: parts.get(LENGTHS_TAG) ?? nothing(),
    timestampDeltasMs: parts.get(TIMESTAMP_DELTAS_TAG) ?? nothing(),
    rawEvents: raw && readRawEvents(raw),
  };
}

function readRawEvents(reader: VarintReader): EncodedRawEvents {
  const parts = partsOf(reader, RAW_TAGS);
  return {
    lengths: parts.get(LENGTHS_TAG) ?? nothing(),
    steps: parts.get(STEPS_TAG) ?? nothing(),
    texts: textOfBytes(parts.get(TEXTS_TAG) ?? nothing()),
  };
}

const TAGS = [LENGTHS_TAG, TIMESTAMP_DELTAS_TAG, RAW_EVENTS_TAG];
const RAW_TAGS = [LENGTHS_TAG, STEPS_TAG, TEXTS_TAG];

function partsOf(reader: VarintReader, tags: readonly number[]): Map<number, VarintReader> {
  const parts = new Map<number, VarintReader>();
  while (!reader.isAtEnd) {
    const tag = reader.uint32();
    const part = reader.part(reader.uint32());
    if (!tags.includes(tag) || parts.has(tag))
      throw new RangeError("the fragment index has a field that is not its own");
    parts.set(tag, part);
  }
  return parts;
}

function textOfBytes(reader: VarintReader): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(reader.rest);
  } catch {
    throw new RangeError("the fragment index has a text that is not UTF-8");
  }
}

function nothing(): VarintReader {
  return new VarintReader(new Uint8Array());
}

/** A row before its storage: its payload is an object without a repeated key. */
interface MergedRow {
  readonly eventType: string;
  readonly payload: string;
  readonly eventCount: number;
}

/** The reasons why the row does not expand; empty when it does. */
export function checkFragments(row: MergedRow, index: FragmentIndex): readonly Violation[] {
  const { eventType, payload, eventCount } = row;
  if (!isCompressible(eventType))
    return [violation("fragments", `absent: ${eventType} carries no fragment of a text`)];
  const spans = new Map(memberSpans(payload).map(({ key, valueSpan }) => [key, valueSpan]));
  const delta = spans.get("delta");
  const { rawEvents } = index;
  const found = [
    checkLengths(rawEvents?.lengths ?? index.lengths, {
      field: rawEvents === undefined ? "fragments.lengths" : "fragments.raw_events.lengths",
      eventCount,
      delta: delta && valueOf(payload, delta),
    }),
    rawEvents !== undefined && index.lengths.length > 0
      ? violation("fragments.lengths", "empty when raw_events has the lengths")
      : undefined,
    checkTimestamps(index.timestampDeltasMs, {
      eventCount,
      timestamp: textOf(payload, spans.get("timestamp")),
    }),
    checkSize(row, delta),
  ].filter((one) => one !== undefined);
  if (rawEvents === undefined || found.length > 0) return found;
  const raw = checkRawEvents(row, rawEvents);
  return raw === undefined ? [] : [raw];
}

/** Reads the values as a reader of the row does, because any of them may be wrong. */
function checkRawEvents(
  { payload, eventCount }: MergedRow,
  { lengths, steps, texts }: RawEvents,
): Violation | undefined {
  const name = "fragments.raw_events";
  const textsBytes = utf8Bytes(texts);
  if (textsBytes > TEXTS_BYTES_MAX)
    return violation(`${name}.texts`, `at most ${TEXTS_BYTES_MAX} bytes, but is ${textsBytes}`);
  const gaps = gapsOf(payload);
  const deltas = gaps.delta && new Texts(payload, gaps.delta);
  try {
    const reader = new VarintReader(Uint8Array.from(packedField(steps)));
    const raw = new RawReader(payload, gaps, { steps: reader, texts, eventCount });
    const deltaBytes = utf8Bytes(textOf(payload, gaps.delta));
    let bytes = (utf8Bytes(payload) - deltaBytes - utf8Bytes(raw.values.join(""))) * eventCount;
    for (const [at, length] of lengths.entries()) {
      const delta = deltas?.next(length - 1);
      if (at > 0) raw.advance(delta);
      for (const value of raw.values) bytes += UNIT_BYTES_MAX * value.length;
      if (bytes > EXPANDED_BYTES_MAX)
        return violation("payload", `at most ${EXPANDED_BYTES_MAX} bytes when expanded`);
    }
    return undefined;
  } catch (error) {
    if (error instanceof RangeError) return { field: name, description: error.message };
    throw error;
  }
}

function checkLengths(
  lengths: readonly number[],
  {
    field,
    eventCount,
    delta,
  }: { readonly field: string; readonly eventCount: number; readonly delta: unknown },
): Violation | undefined {
  if (lengths.length !== eventCount)
    return violation(field, `${eventCount} numbers, as event_count is, but is ${lengths.length}`);
  if (delta === undefined)
    return lengths.every((length) => length === 0)
      ? undefined
      : violation(field, "0 for each fragment, as the payload has no delta");
  if (typeof delta !== "string") return violation("payload.delta", "a string, or left out");
  // Merged fragments differ only in text and time, so all have a delta or none has.
  if (lengths.includes(0))
    return violation(field, "above 0 for each fragment, as the payload has a delta");
  const units = lengths.reduce((sum, length) => sum + length - 1, 0);
  if (units === delta.length) return undefined;
  const total = `${delta.length} UTF-16 units in all, as the delta is`;
  return violation(field, `${total}, but is ${units}`);
}

/** A decimal integer in its canonical spelling: any other spelling would be lost. */
const PLAIN_INTEGER = /^(0|-?[1-9][0-9]*)$/;

function checkTimestamps(
  deltas: readonly bigint[],
  { eventCount, timestamp }: { readonly eventCount: number; readonly timestamp: string },
): Violation | undefined {
  const field = "fragments.timestamp_deltas_ms";
  if (deltas.length === 0) return undefined;
  if (deltas.length !== eventCount - 1)
    return violation(field, `empty, or ${eventCount - 1} numbers, but is ${deltas.length}`);
  return PLAIN_INTEGER.test(timestamp)
    ? undefined
    : violation(field, "empty where the payload's timestamp is absent or not a plain integer");
}

function checkSize(
  { payload, eventCount }: MergedRow,
  delta: TextSpan | undefined,
): Violation | undefined {
  if (UNIT_BYTES_MAX * payload.length * eventCount <= EXPANDED_BYTES_MAX) return undefined;
  // The quotes stay.
  const deltaBytes = delta === undefined ? 0 : utf8Bytes(textOf(payload, delta)) - 2;
  const expandedBytes = (utf8Bytes(payload) - deltaBytes) * eventCount;
  if (expandedBytes <= EXPANDED_BYTES_MAX) return undefined;
  const limit = `at most ${EXPANDED_BYTES_MAX} bytes when expanded`;
  return violation("payload", `${limit}, but is ${expandedBytes}`);
}

function valueOf(text: string, span: TextSpan): unknown {
  return JSON.parse(textOf(text, span));
}

function textOf(text: string, span: TextSpan | undefined): string {
  return span === undefined ? "" : text.slice(span.start, span.end);
}

function violation(field: string, expected: string): Violation {
  return { field, description: `${field} must be ${expected}` };
}
