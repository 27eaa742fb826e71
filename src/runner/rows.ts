import type { SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import type { SessionMessage } from "../../gen/ambient/v1/messages_pb.ts";

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
