/**
 * Stored rows as the messages of the contract. Every row of every push, page and watch passes here,
 * so the messages are written out as literals: `create()` takes 0.45 µs for a SessionEvent with its
 * timestamp, the literal under 0.1 µs, and both encode to the same bytes (Node 24.21, protobuf-es
 * 2.17; the equality is pinned by test/unit/rows-to-wire.test.ts). Fields without a value are there
 * as `undefined`, so that all messages of a type share one shape.
 */
import { fromBinary } from "@bufbuild/protobuf";
import { WatchState } from "../../gen/ambient/v1/common_pb.ts";
import { FragmentsSchema, type SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import type { SessionMessage } from "../../gen/ambient/v1/messages_pb.ts";
import type { EventRow, MessageRow } from "../store/rows.ts";
import { senderOf } from "./sender.ts";
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
