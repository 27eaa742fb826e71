/**
 * Rows as plain objects, with `undefined` for null. A pushed row is made before its commit gives it a place
 * (`placeRow`), and then equals the row of a later read.
 */
export type StreamName = "messages" | "events";

interface RowBase {
  /** Empty before the commit. */
  readonly sessionId: string;
  /** Number of the row; for a merged event row, the number of its first event. 0 before the commit. */
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
  /** Empty outside of a run. Before the commit only the start of a run has one. */
  readonly runId: string;
  /** Before the commit, of the end of a run: how it ended; `asked` of a graph's question in it. */
  readonly runOutcome?: string | undefined;
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

export interface SessionHead {
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  readonly deleted: boolean;
}

export function headOf(head: SessionHead, stream: StreamName): bigint {
  return stream === "messages" ? head.messageSeq : head.eventSeq;
}

/** The pushes that the rest of the service gives to the store, and their outcomes. */

/** Bytes that count for limits: long texts and byte fields. Reads every payload. */
export function storedBytesOf(rows: readonly StoredRow[]): number {
  let bytes = 0;
  for (const row of rows) {
    bytes += Buffer.byteLength(row.payload);
    if (row.stream === "events") bytes += row.fragments?.length ?? 0;
    else if (row.sender !== undefined) bytes += Buffer.byteLength(row.sender);
  }
  return bytes;
}

/** Gives a new row the place that its commit has stored it at. Nobody else has the row before that. */
export function placeRow(
  row: StoredRow,
  { sessionId, seq, runId }: Pick<EventRow, "sessionId" | "seq" | "runId">,
): void {
  const placed: { sessionId: string; seq: bigint; runId?: string } = row;
  placed.sessionId = sessionId;
  placed.seq = seq;
  if (row.stream === "events") placed.runId = runId;
}

export function startsRun({ eventType, conformant }: EventRow): boolean {
  return conformant && eventType === "RUN_STARTED";
}

export function endsRun({ eventType, conformant }: EventRow): boolean {
  return conformant && (eventType === "RUN_FINISHED" || eventType === "RUN_ERROR");
}

/** The numbers that a part of a push stream stands for, as its client counts them. */
export interface StreamRange {
  /** The answer to the opening of the stream. */
  readonly epoch: bigint;
  readonly stream: bigint;
  readonly firstClientSeq: bigint;
  readonly lastClientSeq: bigint;
  /** The number of refused events among these: their numbers are used, and no row has them. */
  readonly refused: number;
}

/** The state of a session for which the rows of a push were made: they are stored only in that state. */
export interface SeenState {
  /** Undefined: any watermark. */
  readonly turnSeq: bigint | undefined;
  /** Empty: no run is open. */
  readonly openRunId: string;
  readonly epoch: bigint | undefined;
  /** Only where no event may have come since. */
  readonly eventSeq: bigint | undefined;
}

/** A claim of arrivals as a turn: the rows are the end of a lost run, and the start of the new one. */
export interface Claim {
  /** The watermark before the turn. */
  readonly fromSeq: bigint;
  /** The watermark after the turn. */
  readonly turnSeq: bigint;
  /** The number of arrivals that wait no longer; below 0 when more of a lost run wait again. */
  readonly taken: number;
}

/** Rows that are stored together or not at all: of one event, a group, a range, or a claim. */
export interface Push {
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly key?: string | undefined;
  /** The sha-256 of the content under the key; only with a key. */
  readonly digest?: Uint8Array | undefined;
  readonly epoch?: bigint | undefined;
  /** The caller who pushes, from the token. */
  readonly actor?: string | undefined;
  /** Only for a push stream. Its numbers serve as key and epoch: such a push has no others. */
  readonly range?: StreamRange | undefined;
  /** Only for a claim, a cancel, and the end of a cancelled run. */
  readonly seen?: SeenState | undefined;
  /** Only for a claim; it also has an epoch. */
  readonly claim?: Claim | undefined;
  /**
   * True: the feedback of a person. It has a separate share, so its row is not counted in the rows and
   * bytes of its session. Its key has the form of FEEDBACK_KEY, and no other push has such a key.
   */
  readonly isFeedback?: boolean;
  /** True: its message asks to end the open run. It is stored only if no message asked before. */
  readonly cancels?: boolean;
  /** Empty only for a range whose events were all refused, and for a push that raises the epoch. */
  readonly rows: readonly StoredRow[];
  /** `storedBytesOf` its rows. */
  readonly bytes: number;
}

/**
 * The keys of feedback (feedback.ts), as a pattern of JavaScript and of PostgreSQL; also in
 * migrations/fork-0002.sql. By them a deletion and a copy know which rows are not counted.
 */
export const FEEDBACK_KEY = "^feedbackp[0-9a-f]{32}m[0-9a-f]{32}n[0-9]{10}$";

/** The row that carries the key of its push: the first, or the start of the run of a claim. */
export function keyedRow({ claim, rows }: Push): StoredRow | undefined {
  return claim === undefined ? rows[0] : rows.at(-1);
}

export function arrivalsOf({ stream, rows }: Push): number {
  return stream === "messages" ? rows.filter(isArrival).length : 0;
}

/** An arrival is a message for the agent: it waits until a turn takes it. */
export function isArrival({ eventType }: { readonly eventType: string }): boolean {
  return eventType === "user";
}

/** The limits of one session, for messages and events together. */
export interface SessionLimits {
  readonly sessionRowsMax: number;
  readonly sessionBytesMax: number;
  /** Arrivals that wait, in a session that was claimed before. */
  readonly pendingMax: number;
}

export type Outcome =
  /** Committed: the rows of the push have their places. */
  | { readonly kind: "stored" }
  /**
   * The row of an earlier push with key and content, or the first row of a committed range
   * (undefined: it has no rows, or they are erased).
   */
  | { readonly kind: "deduplicated"; readonly row: StoredRow | undefined }
  | { readonly kind: "key_reused" | "stale_epoch" | "not_found" | "deleted" }
  /** The range's stream is not the session's newest one. */
  | { readonly kind: "stream_replaced" }
  /** The range before this one was not stored, so this one is not stored either. */
  | { readonly kind: "gap" }
  /** The claim was made for another state of the session. */
  | { readonly kind: "turn_moved" }
  /** The session would exceed one of its limits. */
  | { readonly kind: "full"; readonly of: "rows" | "bytes" | "pending"; readonly max: number }
  /**
   * Another push of its session is refused or repeated, or the session has no room for all: nothing
   * was stored. It is sent again; `isLater`: after those before it, which leave it no room now.
   */
  | { readonly kind: "again"; readonly isLater?: boolean }
  /** Another transaction holds the session: try again with it alone, and `wait`. */
  | { readonly kind: "busy" };

/**
 * Decides which pushes of one session may share a batch. A batch is judged as a whole, so no push
 * may depend on an earlier one: by the same key, an epoch below an earlier one, or a range that
 * does not continue the same stream. A range changes no epoch.
 */
export class Independent {
  readonly #keys = new Set<string>();
  #epoch: bigint | undefined;
  #range: StreamRange | undefined;
  #isEmpty = true;

  /** Adds the push and returns true, or returns false. */
  admit(push: Push): boolean {
    const { range } = push;
    if (push.seen !== undefined && !this.#isEmpty) return false;
    const key = push.key === undefined ? undefined : `${push.stream} ${push.key}`;
    if (key !== undefined && this.#keys.has(key)) return false;
    const epoch = range?.epoch ?? push.epoch;
    if (epoch !== undefined && this.#epoch !== undefined && epoch < this.#epoch) return false;
    if (range !== undefined && this.#range !== undefined && !isLater(range, this.#range))
      return false;
    this.#isEmpty = false;
    if (key !== undefined) this.#keys.add(key);
    this.#epoch = push.epoch ?? this.#epoch;
    this.#range = range ?? this.#range;
    return true;
  }
}

function isLater(one: StreamRange, other: StreamRange): boolean {
  const isSameStream = one.epoch === other.epoch && one.stream === other.stream;
  return isSameStream && one.firstClientSeq > other.lastClientSeq;
}
