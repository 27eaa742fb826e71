/**
 * Stored rows as the messages of the contract. Every row of every push, page and watch passes here,
 * so the messages are written out as literals: `create()` takes 0.45 µs for a SessionEvent with its
 * timestamp, the literal under 0.1 µs, and both encode to the same bytes (Node 24.21, protobuf-es
 * 2.17; the equality is pinned by test/unit/rows-to-wire.test.ts). Fields without a value are there
 * as `undefined`, so that all messages of a type share one shape.
 */
import { fromBinary, fromJsonString, toJsonString } from "@bufbuild/protobuf";
import { WatchState } from "../../gen/ambient/v1/common_pb.ts";
import { FragmentsSchema, type SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import {
  type Sender,
  SenderSchema,
  type SessionMessage,
} from "../../gen/ambient/v1/messages_pb.ts";
import { expand } from "../compressor/expand.ts";
import type { EventRow, MessageRow } from "../store/rows.ts";
import { timestampOf } from "./times.ts";

/** The memory of a row beside its payload: the objects, the ids. */
const ROW_BYTES = 1_024;

/** The memory of rows, at two bytes per character: V8 uses one or two, and does not say which. */
export function heldBytesOf(rows: readonly { readonly payload: string }[]): number {
  return rows.reduce((sum, { payload }) => sum + ROW_BYTES + 2 * payload.length, 0);
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
    deduplicated,
    runId: row.runId,
    watchState: WatchState.UNSPECIFIED,
  };
}

/**
 * Raw events as messages of the contract: the events of a merged row with a number above `afterSeq`,
 * in order, made on demand, each under its own number. They carry the row's id, stand for one event
 * each, and have no index and no completed_at. A row without an index is one message, the row
 * itself.
 */
export function* toRawEvents(
  row: EventRow,
  afterSeq: bigint,
): Generator<SessionEvent, void, undefined> {
  if (row.fragments === undefined) {
    if (row.seq > afterSeq) yield toSessionEvent(row);
    return;
  }
  const { id, sessionId, runId } = row;
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
