/**
 * The rows of a session as the rest of the service sees them: plain objects, times in microseconds,
 * `undefined` where the table has null. A row that was just pushed equals the row of a later read,
 * field by field.
 */
export type StreamName = "messages" | "events";

interface RowBase {
  readonly sessionId: string;
  /** Number of the row; for a merged event row, the number of its first event. */
  readonly seq: bigint;
  /** UUIDv7, used only as identity. */
  readonly id: string;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
}

export interface MessageRow extends RowBase {
  readonly stream: "messages";
  readonly sentAtMicros: bigint | undefined;
  /** The sender as JSON text; the store does not parse it. */
  readonly sender: string | undefined;
}

export interface EventRow extends RowBase {
  readonly stream: "events";
  readonly completedAtMicros: bigint | undefined;
  /** The number of events that the row stands for; the next row's seq is `seq + eventCount`. */
  readonly eventCount: number;
  /** Empty outside of a run. */
  readonly runId: string;
  /** The encoded fragment index; the store does not decode it. */
  readonly fragments: Uint8Array | undefined;
  readonly conformant: boolean;
}

export type StoredRow = MessageRow | EventRow;
export type RowOf<S extends StreamName> = S extends "messages" ? MessageRow : EventRow;

/** The last number that a row takes: a valid cursor with and without expansion. */
export function lastSeqOf(row: StoredRow): bigint {
  return row.stream === "messages" ? row.seq : row.seq + BigInt(row.eventCount) - 1n;
}

/** The heads of a session, and whether it is deleted. */
export interface SessionHead {
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  readonly deleted: boolean;
}

export function headOf(head: SessionHead, stream: StreamName): bigint {
  return stream === "messages" ? head.messageSeq : head.eventSeq;
}
