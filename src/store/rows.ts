/**
 * What a session holds, as the rest of the service sees it: plain rows, times in microseconds,
 * `undefined` where the table has null. A row that was just pushed is the same object that a later
 * read returns, field by field.
 */
export type StreamName = "messages" | "events";

interface RowBase {
  readonly sessionId: string;
  /** Number of the row; of a merged event row, the number of its first event. */
  readonly seq: bigint;
  /** UUIDv7; identity only. */
  readonly id: string;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
}

export interface MessageRow extends RowBase {
  readonly stream: "messages";
  readonly sentAtMicros: bigint | undefined;
  /** The sender as JSON text; the store does not look inside. */
  readonly sender: string | undefined;
}

export interface EventRow extends RowBase {
  readonly stream: "events";
  readonly completedAtMicros: bigint | undefined;
  /** How many events the row stands for; the next row's seq is `seq + eventCount`. */
  readonly eventCount: number;
  /** Empty outside a run. */
  readonly runId: string;
  /** The encoded fragment index; the store does not look inside. */
  readonly fragments: Uint8Array | undefined;
  readonly conformant: boolean;
}

export type StoredRow = MessageRow | EventRow;
export type RowOf<S extends StreamName> = S extends "messages" ? MessageRow : EventRow;

/** The last number a row takes: the cursor that is right with and without expansion. */
export function lastSeqOf(row: StoredRow): bigint {
  return row.stream === "messages" ? row.seq : row.seq + BigInt(row.eventCount) - 1n;
}

/** Where a session stands. */
export interface SessionHead {
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  readonly deleted: boolean;
}

export function headOf(head: SessionHead, stream: StreamName): bigint {
  return stream === "messages" ? head.messageSeq : head.eventSeq;
}
