/** The rows of a session: their JSON, their times, and their form as plain values for readers. */
import { toBinary, toJson, toJsonString } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { type SessionEvent, SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import {
  type SessionMessage,
  SessionMessageSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { type Session, SessionSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";
import { msOf } from "@session-ledger/base/clock";
import { decodeFragments, type FragmentIndex } from "@session-ledger/compressor/fragments";

export type StreamName = "messages" | "events";
export type LedgerRow = SessionEvent | SessionMessage;

export function isEvent(row: LedgerRow): row is SessionEvent {
  return row.$typeName === "ambient.v1.SessionEvent";
}

/** The last number that a row takes; a valid `after_seq` with and without `expand`. */
export function lastSeqOf(row: LedgerRow): bigint {
  return isEvent(row) ? row.seq + BigInt(row.eventCount) - 1n : row.seq;
}

/** The writer of a message, where the service cannot know it; at most 1,024 bytes per field. */
export interface Sender {
  readonly id?: string;
  readonly name?: string;
  readonly displayName?: string;
  readonly isBot?: boolean;
  readonly channel?: string;
  readonly channelId?: string;
  readonly threadId?: string;
}

/**
 * A row in protobuf's own JSON mapping, on one line: 64-bit numbers are strings, times RFC 3339 with
 * the microseconds of the record, and a field without a value is left out.
 */
export function rowJson(row: LedgerRow): string {
  return isEvent(row)
    ? toJsonString(SessionEventSchema, row)
    : toJsonString(SessionMessageSchema, row);
}

export function sessionJson(session: Session): string {
  return toJsonString(SessionSchema, session);
}

export function timeText(time: Timestamp | undefined): string {
  return time === undefined ? "" : toJson(TimestampSchema, time);
}

/** The fields of rows of both streams. */
abstract class LedgerItem {
  /** UUIDv7 of the row. It gives no order, and the events of one merged row share it. */
  readonly id: string;
  readonly sessionId: string;
  /** Its number in its stream; for a merged row, the number of its first event. */
  readonly seq: bigint;
  /** The last number it takes: as `after`, it continues with the next row, also expanded. */
  readonly lastSeq: bigint;
  readonly eventType: string;
  /** As stored, byte for byte: JSON for an event, any text of the sender for a message. */
  readonly payload: string;
  /** When it happened, microseconds since 1970; for a merged row, the time of its first event. */
  readonly createdAtMicros: bigint;
  readonly #row: LedgerRow;

  constructor(row: LedgerRow) {
    this.id = row.id;
    this.sessionId = row.sessionId;
    this.seq = row.seq;
    this.lastSeq = lastSeqOf(row);
    this.eventType = row.eventType;
    this.payload = row.payload;
    this.createdAtMicros = microsOf(row.createdAt) ?? 0n; // Every service sends this field.
    this.#row = row;
  }

  /** `createdAtMicros`, cut to milliseconds. */
  get createdAt(): Date {
    return dateOf(this.createdAtMicros);
  }

  /** For `JSON.stringify`: the contract's own JSON, as `session-ledger tail` shows it. */
  toJSON(): unknown {
    return JSON.parse(rowJson(this.#row));
  }
}

/** An event row, or one event of it when the reader uses `expand`. */
export class EventItem extends LedgerItem {
  readonly kind = "event";
  /** The number of events that the row stands for; 1 for a single event. */
  readonly eventCount: number;
  /** When the last of the row's events happened; undefined when the writer did not state it. */
  readonly completedAtMicros: bigint | undefined;
  /** The run that it belongs to; undefined outside of runs. */
  readonly runId: string | undefined;
  /** Restores the events of a merged row; pass it to `expand` of @session-ledger/runner/compressor. */
  readonly fragments: FragmentIndex | undefined;
  #event: JsonObject | undefined;

  constructor(row: SessionEvent) {
    super(row);
    this.eventCount = row.eventCount;
    this.completedAtMicros = microsOf(row.completedAt);
    this.runId = row.runId === "" ? undefined : row.runId;
    this.fragments = row.fragments && decodeFragments(toBinary(FragmentsSchema, row.fragments));
  }

  /** `completedAtMicros`, cut to milliseconds. */
  get completedAt(): Date | undefined {
    return this.completedAtMicros === undefined ? undefined : dateOf(this.completedAtMicros);
  }

  /** The payload, parsed at the first access. Numbers beyond 2^53 are exact only in `payload`. */
  get event(): JsonObject {
    this.#event ??= parseObject(this.payload);
    return this.#event;
  }
}

/** A message for a person. */
export class MessageItem extends LedgerItem {
  readonly kind = "message";
  /** The time of writing that its sender stated. */
  readonly sentAtMicros: bigint | undefined;
  readonly sender: Sender | undefined;

  constructor(row: SessionMessage) {
    super(row);
    this.sentAtMicros = microsOf(row.sentAt);
    this.sender = row.sender && senderOf(row.sender);
  }

  /** `sentAtMicros`, cut to milliseconds. */
  get sentAt(): Date | undefined {
    return this.sentAtMicros === undefined ? undefined : dateOf(this.sentAtMicros);
  }
}

const MICROS_PER_SECOND = 1_000_000n;
const NANOS_PER_MICRO = 1_000;

/** In the form of google.protobuf.Timestamp; for times after 1970. */
export function timestampOf(micros: bigint): { readonly seconds: bigint; readonly nanos: number } {
  return {
    seconds: micros / MICROS_PER_SECOND,
    nanos: Number(micros % MICROS_PER_SECOND) * NANOS_PER_MICRO,
  };
}

export function microsOf(time: Timestamp | undefined): bigint | undefined {
  if (time === undefined) return undefined;
  return time.seconds * MICROS_PER_SECOND + BigInt(Math.floor(time.nanos / NANOS_PER_MICRO));
}

function dateOf(micros: bigint): Date {
  return new Date(msOf(micros));
}

/** Without empty fields, which proto3 treats as absent. */
function senderOf(sender: NonNullable<SessionMessage["sender"]>): Sender {
  const { id, name, displayName, isBot, channel, channelId, threadId } = sender;
  const fields = { id, name, displayName, isBot, channel, channelId, threadId };
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== "" && value !== false),
  );
}
