/** What a reader of a session is given: rows of either stream as plain values, no generated messages. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import type { SessionMessage } from "../../gen/ambient/v1/messages_pb.ts";
import { type JsonObject, parseObject } from "../agui/json.ts";
import type { FragmentIndex } from "../compressor/fragments.ts";
import { rowJson } from "./json.ts";
import { type LedgerRow, lastSeqOf, type Sender } from "./rows.ts";

/** What rows of both streams have. */
abstract class Item {
  /** UUIDv7 of the row. It orders nothing, and events of one merged row share it. */
  readonly id: string;
  readonly sessionId: string;
  /** Its number in its stream; of a merged row the number of its first event. */
  readonly seq: bigint;
  /** The last number it takes: as `after` it goes on with what follows, with and without `expand`. */
  readonly lastSeq: bigint;
  readonly eventType: string;
  /** As stored, byte for byte: of an event its JSON, of a message whatever its sender wrote. */
  readonly payload: string;
  /** When it happened, microseconds since 1970; of a merged row its first event. */
  readonly createdAtMicros: bigint;
  readonly #row: LedgerRow;

  constructor(row: LedgerRow) {
    this.id = row.id;
    this.sessionId = row.sessionId;
    this.seq = row.seq;
    this.lastSeq = lastSeqOf(row);
    this.eventType = row.eventType;
    this.payload = row.payload;
    this.createdAtMicros = microsOf(row.createdAt) ?? 0n; // Every service says it.
    this.#row = row;
  }

  /** `createdAtMicros`, cut to milliseconds. */
  get createdAt(): Date {
    return dateOf(this.createdAtMicros);
  }

  /** What `JSON.stringify` prints: the contract's own JSON, as `session-ledger tail` shows it. */
  toJSON(): unknown {
    return JSON.parse(rowJson(this.#row));
  }
}

/** A row of events, or one event of it where the reader asked to `expand`. */
export class EventItem extends Item {
  readonly kind = "event";
  /** How many events the row stands for; 1 where it is one event. */
  readonly eventCount: number;
  /** When the last of the row's events happened; undefined where the writer did not say. */
  readonly completedAtMicros: bigint | undefined;
  /** The run that it belongs to; undefined outside of runs. */
  readonly runId: string | undefined;
  /** What gives back the events of a merged row; `expand` of session-ledger/compressor takes it. */
  readonly fragments: FragmentIndex | undefined;
  #event: JsonObject | undefined;

  constructor(row: SessionEvent) {
    super(row);
    this.eventCount = row.eventCount;
    this.completedAtMicros = microsOf(row.completedAt);
    this.runId = row.runId === "" ? undefined : row.runId;
    this.fragments = row.fragments && {
      lengths: row.fragments.lengths,
      timestampDeltasMs: row.fragments.timestampDeltasMs,
    };
  }

  /** `completedAtMicros`, cut to milliseconds. */
  get completedAt(): Date | undefined {
    return this.completedAtMicros === undefined ? undefined : dateOf(this.completedAtMicros);
  }

  /** The payload, parsed when it is first asked for. Numbers beyond 2^53 are exact in `payload` only. */
  get event(): JsonObject {
    this.#event ??= parseObject(this.payload);
    return this.#event;
  }
}

/** A message, as a person reads it. */
export class MessageItem extends Item {
  readonly kind = "message";
  /** When its sender says that it was written. */
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
const MICROS_PER_MS = 1_000n;
const NANOS_PER_MICRO = 1_000;

function microsOf(time: Timestamp | undefined): bigint | undefined {
  if (time === undefined) return undefined;
  return time.seconds * MICROS_PER_SECOND + BigInt(Math.floor(time.nanos / NANOS_PER_MICRO));
}

function dateOf(micros: bigint): Date {
  return new Date(Number(micros / MICROS_PER_MS));
}

/** Without what is empty, which is how proto3 says that it is not there. */
function senderOf(sender: NonNullable<SessionMessage["sender"]>): Sender {
  const { id, name, displayName, isBot, channel, channelId, threadId } = sender;
  const fields = { id, name, displayName, isBot, channel, channelId, threadId };
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== "" && value !== false),
  );
}
