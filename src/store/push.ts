/** What the rest of the service pushes into the store, and what becomes of it. */
import type { StreamName } from "./rows.ts";

/** What a row does to the session's open run; the store need not know why. */
export type RunMark =
  | { readonly kind: "open"; readonly runId: string }
  | { readonly kind: "close" };

export interface NewRow {
  /** UUIDv7. */
  readonly id: string;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
  readonly completedAtMicros: bigint | undefined;
  /** 1 for a message. */
  readonly eventCount: number;
  readonly fragments: Uint8Array | undefined;
  readonly conformant: boolean;
  readonly mark: RunMark | undefined;
  readonly sender: string | undefined;
  readonly sentAtMicros: bigint | undefined;
}

/** What is stored of a row for its limits, beside the id of its run: the texts and bytes that may be long. */
export function storedBytesOf({ payload, sender, fragments }: NewRow): number {
  const beside = sender === undefined ? 0 : Buffer.byteLength(sender);
  return Buffer.byteLength(payload) + beside + (fragments?.length ?? 0);
}

/** The numbers that a part of a push stream stands for, as its client counts them. */
export interface StreamRange {
  /** What opening the stream answered. */
  readonly epoch: bigint;
  readonly stream: bigint;
  readonly firstClientSeq: bigint;
  readonly lastClientSeq: bigint;
  /** How many of these numbers were refused: they are used up, and no row holds them. */
  readonly refused: number;
}

/**
 * What one call pushes: one row, the rows that a grouped event stands for, or those of a range of a
 * push stream. Stored whole or not.
 */
export interface Push {
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly key: string | undefined;
  /** sha-256 of the content under the key; with a key only. */
  readonly digest: Uint8Array | undefined;
  readonly epoch: bigint | undefined;
  /** Who pushes, from the token. */
  readonly actor: string | undefined;
  /** Of a push stream. Its numbers are its key and its epoch: such a push has no others. */
  readonly range: StreamRange | undefined;
  /** Empty only for a range whose events were all refused. */
  readonly rows: readonly NewRow[];
}

/** What one session may hold, of messages and events together. */
export interface SessionLimits {
  readonly sessionRowsMax: number;
  readonly sessionBytesMax: number;
}

/** Where a stored row went. */
export interface Place {
  readonly seq: bigint;
  /** Empty outside a run. */
  readonly runId: string;
}

export type Outcome =
  /** Committed: one place a row. */
  | { readonly kind: "stored"; readonly places: readonly Place[] }
  /**
   * An earlier push with this key and content is the row with this number; or the range is committed,
   * and its first row has it (undefined: it has no rows, or they are erased).
   */
  | { readonly kind: "deduplicated"; readonly seq: bigint | undefined }
  | { readonly kind: "key_reused" | "stale_epoch" | "not_found" | "deleted" }
  /** The range's stream is not the session's newest one. */
  | { readonly kind: "stream_replaced" }
  /** The range before this one was not stored, so this one is not either. */
  | { readonly kind: "gap" }
  /** The session would hold more than it may of one of the two. */
  | { readonly kind: "full"; readonly of: "rows" | "bytes"; readonly max: number }
  /** A later turn of the batch failed with the driver's error; the turns before it are committed. */
  | { readonly kind: "failed"; readonly error: unknown }
  /** Nothing was done: another transaction holds the session. Ask again for it alone, with `wait`. */
  | { readonly kind: "busy" };

/**
 * Tells which pushes of one session may share a batch. One whose fate depends on that of an earlier
 * one may not, because a batch is judged as a whole: the same key, an epoch below one that came
 * before, a range that is not further on in the same stream. A range changes no epoch, so that what
 * comes after it with another depends on nothing.
 */
export class Independent {
  readonly #keys = new Set<string>();
  #epoch: bigint | undefined;
  #range: StreamRange | undefined;

  /** Adds the push and answers true, or answers false. */
  admit(push: Push): boolean {
    const { range } = push;
    const key = push.key === undefined ? undefined : `${push.stream} ${push.key}`;
    if (key !== undefined && this.#keys.has(key)) return false;
    const epoch = range?.epoch ?? push.epoch;
    if (epoch !== undefined && this.#epoch !== undefined && epoch < this.#epoch) return false;
    if (range !== undefined && this.#range !== undefined && !isLater(range, this.#range))
      return false;
    if (key !== undefined) this.#keys.add(key);
    this.#epoch = push.epoch ?? this.#epoch;
    this.#range = range ?? this.#range;
    return true;
  }
}

/** The same stream, further on. */
function isLater(one: StreamRange, other: StreamRange): boolean {
  const isSameStream = one.epoch === other.epoch && one.stream === other.stream;
  return isSameStream && one.firstClientSeq > other.lastClientSeq;
}
