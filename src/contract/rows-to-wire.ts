/**
 * Stored rows as the messages of the contract, written as literals: `create()` takes 0.45 µs for a
 * SessionEvent, a literal under 0.1 µs, for the same bytes (Node 24.21, protobuf-es 2.17;
 * test/unit/rows-to-wire.test.ts). All messages of a type have the same fields, so they share one
 * shape.
 */
import { fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { type Fragments, FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { type SessionEvent, SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import {
  type Sender,
  SenderSchema,
  type SessionMessage,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { PooledBuffer } from "../base/buffer-pool.ts";
import { expand } from "@session-ledger/compressor/expand";
import { byteaOf } from "../store/columns.ts";
import type { RawRow } from "../store/database.ts";
import type { EventRow, MessageRow, StoredRow } from "../store/rows.ts";
import { microsOf, timestampOf } from "./times.ts";

/** The memory of a row besides its payload: the objects, the ids. */
const ROW_BYTES = 1_024;

/** The memory of rows, at two bytes per character: V8 uses one or two, and does not say which. */
export function rowBytesOf(rows: readonly StoredRow[]): number {
  let bytes = 0;
  for (const row of rows) {
    const length = row instanceof WrittenEvent ? row.at.payloadBytes : row.payload.length;
    bytes += ROW_BYTES + 2 * length;
  }
  return bytes;
}

export function toSessionMessage(row: MessageRow, deduplicated = false): SessionMessage {
  return {
    $typeName: "ambient.v1.SessionMessage",
    id: row.id,
    sessionId: row.sessionId,
    seq: row.seq,
    eventType: row.eventType,
    payload: row.payload,
    createdAt: timestampOf(row.createdAtMicros),
    sentAt: row.sentAtMicros === undefined ? undefined : timestampOf(row.sentAtMicros),
    sender: row.sender === undefined ? undefined : senderOf(row.sender),
    deduplicated,
    watchState: WatchState.UNSPECIFIED,
  };
}

export function toSessionEvent(row: EventRow, deduplicated = false): SessionEvent {
  if (row instanceof WrittenEvent) return new WrittenSessionEvent(row);
  return {
    $typeName: "ambient.v1.SessionEvent",
    id: row.id,
    sessionId: row.sessionId,
    seq: row.seq,
    eventType: row.eventType,
    payload: row.payload,
    createdAt: timestampOf(row.createdAtMicros),
    completedAt:
      row.completedAtMicros === undefined ? undefined : timestampOf(row.completedAtMicros),
    eventCount: row.eventCount,
    fragments: row.fragments === undefined ? undefined : fromBinary(FragmentsSchema, row.fragments),
    nonconformant: !row.conformant,
    deduplicated,
    runId: row.runId,
    watchState: WatchState.UNSPECIFIED,
  };
}

/**
 * The events of a merged row above `afterSeq`, made on demand, each under its own number. They have
 * the row's id, count as one event each, and have no index and no completed_at. A row without an
 * index is one message.
 */
export function* toRawEvents(
  row: EventRow,
  afterSeq: bigint,
): Generator<SessionEvent, void, undefined> {
  if (row.fragments === undefined) {
    if (row.seq > afterSeq) yield toSessionEvent(row);
    return;
  }
  const { id, sessionId, runId, conformant } = row;
  let micros = row.createdAtMicros;
  let createdAt = timestampOf(micros);
  for (const { seq, eventType, payload, createdAtMicros } of expand(row, afterSeq)) {
    if (createdAtMicros !== micros) createdAt = timestampOf(createdAtMicros);
    micros = createdAtMicros;
    yield {
      $typeName: "ambient.v1.SessionEvent",
      id,
      sessionId,
      seq,
      eventType,
      payload,
      createdAt,
      completedAt: undefined,
      eventCount: 1,
      fragments: undefined,
      nonconformant: !conformant,
      deduplicated: false,
      runId,
      watchState: WatchState.UNSPECIFIED,
    };
  }
}

/** The sender of a message as the store keeps it: JSON text in the spelling of ProtoJSON. */
export function senderText(sender: Sender): string {
  return toJsonString(SenderSchema, sender);
}

export function senderOf(text: string): Sender {
  // A newer version of the service may have stored a field that this one does not know.
  return fromJsonString(SenderSchema, text, { ignoreUnknownFields: true });
}

/** The field of a page that has its events. */
export const PAGE_ITEMS = 1;

/**
 * The event rows of one read in their wire form, with the bytes of toBinary
 * (test/unit/rows-to-wire.test.ts). A row is copied when it arrives, because its columns are ten objects
 * for the garbage collector, which took a quarter of the CPU of a replay while pages held them. The rows
 * lie one after the other, each as a field of a page, so that a page is sent as it lies here.
 */
export class WrittenEvents {
  readonly #out = new FieldWriter();
  #chunk: PooledBuffer | undefined;

  readonly eventOf = (sessionId: string, columns: RawRow): WrittenEvent => {
    const [seq, id, eventType, payload, createdAt, completedAt, eventCount, runId] = columns;
    const fragments = byteaOf(columns[8]);
    let bytesMax = AROUND_BYTES + 3 * sessionId.length;
    for (const column of columns) if (column !== null) bytesMax += column.length;
    const out = this.#out;
    if (this.#chunk === undefined || out.end + bytesMax > out.into.length) {
      this.#chunk = new PooledBuffer(bytesMax);
      out.into = this.#chunk.bytes;
      out.end = 0;
    }
    const fieldFrom = out.end;
    const from = out.head(PAGE_ITEMS, bytesMax);
    out.bytes(1, id);
    out.bytes(2, bytesOfId(sessionId));
    out.digits(3, seq);
    out.bytes(4, eventType);
    const typeEnd = out.end;
    out.bytes(5, payload);
    out.time(6, createdAt);
    out.time(7, completedAt);
    out.digits(8, eventCount);
    if (fragments !== undefined) out.message(103, fragments);
    const conformant = columns[9]?.[0] === TRUE;
    if (!conformant) out.flag(104);
    out.bytes(111, runId);
    const end = out.end;
    out.end = fieldFrom;
    // The bound may have a longer length than the message.
    const by = out.head(PAGE_ITEMS, end - from) - from;
    if (by < 0) out.into.copyWithin(from + by, from, end);
    out.end = end + by;
    const at = {
      fieldFrom,
      from: from + by,
      end: end + by,
      typeEnd: typeEnd + by,
      typeBytes: eventType?.length ?? 0,
      payloadBytes: payload?.length ?? 0,
      runBytes: runId?.length ?? 0,
      conformant,
    };
    return new WrittenEvent({ chunk: this.#chunk, at });
  };
}

/** Places in the chunk, and lengths. */
interface WrittenPlace {
  /** Of the message as a field of a page. */
  readonly fieldFrom: number;
  readonly from: number;
  /** The id of the run is the last field. */
  readonly end: number;
  readonly typeEnd: number;
  readonly typeBytes: number;
  readonly payloadBytes: number;
  readonly runBytes: number;
  readonly conformant: boolean;
}

/**
 * One of these rows, until its chunk is released by the call that has sent it. Fields whose place is not
 * known are decoded together.
 */
abstract class WrittenRow {
  readonly chunk: PooledBuffer;
  readonly at: WrittenPlace;
  #message: SessionEvent | undefined;

  constructor({ chunk, at }: Pick<WrittenRow, "chunk" | "at">) {
    this.chunk = chunk;
    this.at = at;
  }

  protected get message(): SessionEvent {
    const { from, end } = this.at;
    return (this.#message ??= fromBinary(SessionEventSchema, this.chunk.bytes.subarray(from, end)));
  }

  get eventType(): string {
    const { typeBytes, typeEnd } = this.at;
    return this.chunk.bytes.toString("utf8", typeEnd - typeBytes, typeEnd);
  }

  get runId(): string {
    const { runBytes, end } = this.at;
    return this.chunk.bytes.toString("utf8", end - runBytes, end);
  }

  get sessionId(): string {
    return this.message.sessionId;
  }

  get seq(): bigint {
    return this.message.seq;
  }

  get id(): string {
    return this.message.id;
  }

  get payload(): string {
    return this.message.payload;
  }

  get eventCount(): number {
    return this.message.eventCount;
  }
}

export class WrittenEvent extends WrittenRow implements EventRow {
  readonly stream = "events";

  get conformant(): boolean {
    return this.at.conformant;
  }

  get createdAtMicros(): bigint {
    return this.message.createdAt ? microsOf(this.message.createdAt) : 0n;
  }

  get completedAtMicros(): bigint | undefined {
    const { completedAt } = this.message;
    return completedAt && microsOf(completedAt);
  }

  get fragments(): Uint8Array | undefined {
    const { fragments } = this.message;
    return fragments && toBinary(FragmentsSchema, fragments);
  }
}

/** The same as a message, which gRPC copies and never decodes. */
export class WrittenSessionEvent extends WrittenRow implements SessionEvent {
  readonly $typeName = "ambient.v1.SessionEvent";
  readonly deduplicated = false;
  readonly watchState = WatchState.UNSPECIFIED;

  get nonconformant(): boolean {
    return !this.at.conformant;
  }

  get createdAt(): Timestamp | undefined {
    return this.message.createdAt;
  }

  get completedAt(): Timestamp | undefined {
    return this.message.completedAt;
  }

  get fragments(): Fragments | undefined {
    return this.message.fragments;
  }
}

/** More bytes than the tags, lengths and numbers of a SessionEvent take. */
const AROUND_BYTES = 160;

type ReadColumn = RawRow[number] | undefined;

/** The rows of a page have one session. */
let lastId = { text: "", bytes: Buffer.alloc(0) };

function bytesOfId(text: string): Buffer {
  if (lastId.text !== text) lastId = { text, bytes: Buffer.from(text) };
  return lastId.bytes;
}

const VARINT = 0;
const LENGTH_DELIMITED = 2;
const MICROS_DIGITS = 6;
/** A number of this many digits is exact. */
const EXACT_DIGITS = 15;
const [ZERO, MINUS, POINT, TRUE] = [0x30, 0x2d, 0x2e, 0x74] as const;

/** Writes fields of a message; a field with the default value of its type is left out. */
class FieldWriter {
  into: Buffer = Buffer.alloc(0);
  end = 0;

  bytes(field: number, value: ReadColumn): void {
    if (value !== undefined && value !== null && value.length > 0) this.message(field, value);
  }

  /** The tag and the length of a message or text; returns the place of its first byte. */
  head(field: number, length: number): number {
    this.#varint((field << 3) | LENGTH_DELIMITED);
    this.#varint(length);
    return this.end;
  }

  message(field: number, value: Uint8Array): void {
    this.head(field, value.length);
    this.into.set(value, this.end);
    this.end += value.length;
  }

  /** A bool that is true. */
  flag(field: number): void {
    this.#number(field, 1);
  }

  /** A number of decimal digits. */
  digits(field: number, text: ReadColumn): void {
    if (text === undefined || text === null) return;
    if (text.length > EXACT_DIGITS) return this.#integer(field, BigInt(text.toString()));
    const value = numberOf(text, 0, text.length);
    if (value !== 0) this.#number(field, value);
  }

  /** A Timestamp, of seconds with six decimals. */
  time(field: number, text: ReadColumn): void {
    if (text === undefined || text === null) return;
    const point = text.length - MICROS_DIGITS - 1;
    if (text[point] !== POINT) throw new TypeError("a time has no microseconds");
    const isNegative = text[0] === MINUS;
    const whole = numberOf(text, isNegative ? 1 : 0, point);
    const micros = numberOf(text, point + 1, text.length);
    // Micros count forward from the second, also before 1970.
    const seconds = isNegative ? -whole - (micros > 0 ? 1 : 0) : whole;
    const rest = isNegative && micros > 0 ? 1_000_000 - micros : micros;
    this.#varint((field << 3) | LENGTH_DELIMITED);
    const start = this.end;
    this.end += 1; // A Timestamp has at most 17 bytes, so its length is one byte.
    if (seconds > 0) this.#number(1, seconds);
    else if (seconds < 0) this.#integer(1, BigInt(seconds));
    if (rest > 0) this.#number(2, rest * 1_000);
    this.into[start] = this.end - start - 1;
  }

  #number(field: number, value: number): void {
    this.#varint((field << 3) | VARINT);
    this.#varint(value);
  }

  #integer(field: number, value: bigint): void {
    this.#varint((field << 3) | VARINT);
    let left = BigInt.asUintN(64, value);
    for (; left >= 0x80n; left >>= 7n) this.into[this.end++] = Number(left & 0x7fn) | 0x80;
    this.into[this.end++] = Number(left);
  }

  #varint(value: number): void {
    let left = value;
    for (; left >= 0x80; left = Math.floor(left / 0x80)) {
      this.into[this.end++] = (left % 0x80) | 0x80;
    }
    this.into[this.end++] = left;
  }
}

/** The number that the decimal digits from `start` to `end` spell. */
function numberOf(text: Buffer, start: number, end: number): number {
  let value = 0;
  for (let at = start; at < end; at += 1) value = value * 10 + (text[at] ?? 0) - ZERO;
  return value;
}
