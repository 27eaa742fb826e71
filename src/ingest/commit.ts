/** Commits a batch: appends it, and makes the answers. */
import { keyedRow, type Outcome, type Push, type StoredRow } from "../store/rows.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { OpeningResult, StreamRequest } from "../store/streams.ts";
import { refusal, sessionFull } from "./refusal.ts";

export interface BatchWriter {
  append(pushes: readonly Push[], options: { readonly wait: boolean }): Promise<readonly Outcome[]>;
}

export interface LedgerWriter extends BatchWriter {
  openStream(request: StreamRequest, options: { readonly wait: boolean }): Promise<OpeningResult>;
  /** Returns undefined while the disk has room for pushes; otherwise nothing may be sent. */
  readonly refusal?: () => ServiceError | undefined;
}

export type Settled =
  | { readonly kind: "stored"; readonly rows: readonly StoredRow[] }
  | { readonly kind: "deduplicated"; readonly row: StoredRow }
  | { readonly kind: "refused"; readonly error: ServiceError }
  | Extract<Outcome, { readonly kind: "again" | "busy" }>;

/** Returns one answer per push, in order. Rejects with the driver's error. */
export async function commitBatch(
  writer: BatchWriter,
  pushes: readonly Push[],
  options: { readonly wait: boolean },
): Promise<readonly Settled[]> {
  const outcomes = await writer.append(pushes, options);
  return pushes.map((push, index): Settled => {
    const outcome = outcomes[index] ?? { kind: "busy" };
    switch (outcome.kind) {
      case "busy":
      case "again":
        return outcome;
      case "stored":
        return { kind: "stored", rows: push.rows };
      case "deduplicated":
        return outcome.row === undefined ? withoutRow(push) : deduplicated(push, outcome.row);
      case "key_reused":
      case "stale_epoch":
      case "turn_moved":
      case "stream_replaced":
      case "gap":
      case "not_found":
      case "deleted":
        return { kind: "refused", error: refusal(outcome.kind, push) };
      case "full":
        return { kind: "refused", error: sessionFull(push.sessionId, outcome) };
    }
  });
}

/** The id is ours when this push was committed, and its answer was lost. */
function deduplicated(push: Push, row: StoredRow): Settled {
  const isOwn = row.id === keyedRow(push)?.id;
  return isOwn ? { kind: "stored", rows: [row] } : { kind: "deduplicated", row };
}

/** A repeated push that has no stored row. */
function withoutRow(push: Push): Settled {
  if (push.rows.length === 0) return { kind: "stored", rows: [] };
  return {
    kind: "refused",
    error: new ServiceError("aborted", "ROW_ERASED", "the row of this push was erased meanwhile"),
  };
}
