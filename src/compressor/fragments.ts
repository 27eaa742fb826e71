/**
 * The fragment index of a merged row: the places of its fragments in the joined text, and their
 * times. A row that is pushed with an index must expand to `event_count` events, so the index is
 * checked before it is stored: a stored row is never rewritten, so it cannot be repaired.
 */
import { isCompressible } from "../agui/catalogue.ts";
import { memberSpans, type Span } from "../agui/spans.ts";
import type { Violation } from "../base/errors.ts";
import { utf8Bytes } from "./text.ts";

/** The limit for the expansion of one row, so that it cannot exhaust a reader's memory. */
export const EXPANDED_BYTES_MAX = 64 * 1024 * 1024;

export interface FragmentIndex {
  /** UTF-16 units of each fragment's delta plus 1; 0 for a fragment without one. */
  readonly lengths: readonly number[];
  /** Each payload timestamp minus the previous one; empty where the payloads have none. */
  readonly timestampDeltasMs: readonly bigint[];
}

/** The message `Fragments`: its two fields, each packed. (proto/ambient/v1/events.proto) */
const LENGTHS_TAG = (1 << 3) | 2;
const TIMESTAMP_DELTAS_TAG = (2 << 3) | 2;

/** The message `Fragments` in its one canonical encoding, which the service also stores. */
export function encodeFragments({ lengths, timestampDeltasMs }: FragmentIndex): Uint8Array {
  const packedLengths = new VarintWriter();
  for (const length of lengths) packedLengths.uint32(length);
  const packedDeltas = new VarintWriter();
  for (const deltaMs of timestampDeltasMs) packedDeltas.sint64(deltaMs);
  return Uint8Array.from([
    ...packedField(LENGTHS_TAG, packedLengths.bytes),
    ...packedField(TIMESTAMP_DELTAS_TAG, packedDeltas.bytes),
  ]);
}

function packedField(tag: number, packed: readonly number[]): readonly number[] {
  if (packed.length === 0) return [];
  const writer = new VarintWriter();
  writer.uint32(tag);
  writer.uint32(packed.length);
  return [...writer.bytes, ...packed];
}

/** Throws a RangeError when the bytes are not such an encoding. */
export function decodeFragments(bytes: Uint8Array): FragmentIndex {
  const encoded = readFragments(bytes);
  const lengths: number[] = [];
  while (!encoded.lengths.isAtEnd) lengths.push(encoded.lengths.uint32());
  const timestampDeltasMs: bigint[] = [];
  while (!encoded.timestampDeltasMs.isAtEnd)
    timestampDeltasMs.push(BigInt(encoded.timestampDeltasMs.sint64()));
  return { lengths, timestampDeltasMs };
}

/** The two lists of an encoded index; each is read on demand. */
interface EncodedIndex {
  readonly lengths: VarintReader;
  readonly timestampDeltasMs: VarintReader;
}

export function readFragments(bytes: Uint8Array): EncodedIndex {
  const reader = new VarintReader(bytes);
  let lengths = NO_NUMBERS;
  let timestampDeltasMs = NO_NUMBERS;
  while (!reader.isAtEnd) {
    const tag = reader.uint32();
    const list = reader.part(reader.uint32());
    if (tag === LENGTHS_TAG && lengths === NO_NUMBERS) lengths = list;
    else if (tag === TIMESTAMP_DELTAS_TAG && timestampDeltasMs === NO_NUMBERS)
      timestampDeltasMs = list;
    else throw new RangeError("the fragment index has a field that is not its own");
  }
  return { lengths, timestampDeltasMs };
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
  return [
    checkLengths(index.lengths, { eventCount, delta: delta && valueOf(payload, delta) }),
    checkTimestamps(index.timestampDeltasMs, {
      eventCount,
      timestamp: textOf(payload, spans.get("timestamp")),
    }),
    checkSize(row, delta),
  ].filter((found) => found !== undefined);
}

function checkLengths(
  lengths: readonly number[],
  { eventCount, delta }: { readonly eventCount: number; readonly delta: unknown },
): Violation | undefined {
  const field = "fragments.lengths";
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
  delta: Span | undefined,
): Violation | undefined {
  // At most 3 bytes per unit.
  if (3 * payload.length * eventCount <= EXPANDED_BYTES_MAX) return undefined;
  // The quotes stay.
  const deltaBytes = delta === undefined ? 0 : utf8Bytes(textOf(payload, delta)) - 2;
  const expandedBytes = (utf8Bytes(payload) - deltaBytes) * eventCount;
  if (expandedBytes <= EXPANDED_BYTES_MAX) return undefined;
  const limit = `at most ${EXPANDED_BYTES_MAX} bytes when expanded`;
  return violation("payload", `${limit}, but is ${expandedBytes}`);
}

function valueOf(text: string, span: Span): unknown {
  return JSON.parse(textOf(text, span));
}

function textOf(text: string, span: Span | undefined): string {
  return span === undefined ? "" : text.slice(span.start, span.end);
}

function violation(field: string, expected: string): Violation {
  return { field, description: `${field} must be ${expected}` };
}

/**
 * Integers in protobuf's encoding: seven bits per byte, the low ones first, the top bit for "more
 * follow"; signed ones with their sign in the lowest bit. An index mostly takes one byte per token,
 * so integers that fit a JavaScript number stay numbers.
 */
const MORE = 0x80;
const SEVEN_BITS = 0x7f;
const UINT32_MAX = 0xffff_ffff;
/** Integers below it, doubled, are still exact in 32-bit arithmetic. */
const SMALL = 2 ** 30;

class VarintWriter {
  readonly bytes: number[] = [];

  uint32(value: number): void {
    if (!Number.isInteger(value) || value < 0 || value > UINT32_MAX)
      throw new RangeError(`${value} is no unsigned number of 32 bits`);
    let rest = value;
    while (rest >= MORE) {
      this.bytes.push((rest & SEVEN_BITS) | MORE);
      rest >>>= 7;
    }
    this.bytes.push(rest);
  }

  sint64(value: bigint): void {
    const small = Number(value);
    if (small > -SMALL && small < SMALL) {
      this.uint32((small << 1) ^ (small >> 31));
      return;
    }
    if (BigInt.asIntN(64, value) !== value)
      throw new RangeError(`${value} is no signed number of 64 bits`);
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    while (rest >= BigInt(MORE)) {
      this.bytes.push(Number(rest & BigInt(SEVEN_BITS)) | MORE);
      rest >>= 7n;
    }
    this.bytes.push(Number(rest));
  }
}

class VarintReader {
  readonly #bytes: Uint8Array;
  #at: number;
  readonly #end: number;

  constructor(bytes: Uint8Array, { start = 0, end = bytes.length } = {}) {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = end;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#end;
  }

  uint32(): number {
    const value = this.#varint();
    if (value <= UINT32_MAX) return Number(value);
    throw new RangeError("a number of the fragment index is larger than 32 bits");
  }

  /** A bigint only when a number would be inexact. */
  sint64(): number | bigint {
    const value = this.#varint();
    if (typeof value === "number") return (value >>> 1) ^ -(value & 1);
    return BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
  }

  /** A reader for the next `bytes` bytes. */
  part(bytes: number): VarintReader {
    const start = this.#at;
    if (bytes > this.#end - start) throw cutShort();
    this.#at = start + bytes;
    return new VarintReader(this.#bytes, { start, end: this.#at });
  }

  /** A number below 2^28, or a bigint. */
  #varint(): number | bigint {
    let value = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.#byte();
      value |= (byte & SEVEN_BITS) << shift;
      if (byte < MORE) return value;
    }
    let wide = BigInt(value);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      const byte = this.#byte();
      wide |= BigInt(byte & SEVEN_BITS) << shift;
      if (byte < MORE && wide >> 64n === 0n) return wide;
    }
    throw new RangeError("a number of the fragment index is larger than 64 bits");
  }

  #byte(): number {
    const byte = this.#at < this.#end ? this.#bytes[this.#at] : undefined;
    if (byte === undefined) throw cutShort();
    this.#at += 1;
    return byte;
  }
}

function cutShort(): RangeError {
  return new RangeError("the fragment index is cut short");
}

const NO_NUMBERS = new VarintReader(new Uint8Array());
