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

/** What one call pushes: one row, or the rows that a grouped event stands for. Stored whole or not. */
export interface Push {
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly key: string | undefined;
  /** sha-256 of the content under the key; with a key only. */
  readonly digest: Uint8Array | undefined;
  readonly epoch: bigint | undefined;
  /** Who pushes, from the token. */
  readonly actor: string | undefined;
  readonly rows: readonly [NewRow, ...NewRow[]];
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
  /** An earlier push with this key and content is the row with this number. */
  | { readonly kind: "deduplicated"; readonly seq: bigint }
  | { readonly kind: "key_reused" | "stale_epoch" | "not_found" | "deleted" }
  /** Somebody holds the session; ask again for it alone, with `wait`. */
  | { readonly kind: "busy" };

/**
 * Tells which pushes of one session may share a batch. One whose fate depends on that of an earlier
 * one may not (the same key, or a lower epoch), because a batch is judged as a whole.
 */
export class Independent {
  readonly #keys = new Set<string>();
  #epoch: bigint | undefined;

  /** Adds the push and answers true, or answers false. */
  admit(push: Push): boolean {
    const key = push.key === undefined ? undefined : `${push.stream} ${push.key}`;
    if (key !== undefined && this.#keys.has(key)) return false;
    if (push.epoch !== undefined && this.#epoch !== undefined && push.epoch < this.#epoch)
      return false;
    if (key !== undefined) this.#keys.add(key);
    this.#epoch = push.epoch ?? this.#epoch;
    return true;
  }
}
