/** Commits a batch: appends it, makes the stored rows, and finds the rows of repeated pushes. */
import { failureOf } from "../store/failure.ts";
import {
  keyedRow,
  type Outcome,
  type RowPosition,
  type Push,
  type StoredRow,
  storedRow,
} from "../store/rows.ts";
import type { RowAddress } from "../store/pages.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { OpeningResult, StreamRequest } from "../store/streams.ts";
import { refusal, sessionFull } from "./refusal.ts";

export interface BatchWriter {
  append(pushes: readonly Push[], options: { readonly wait: boolean }): Promise<readonly Outcome[]>;
  readByAddress(addresses: readonly RowAddress[]): Promise<readonly (StoredRow | undefined)[]>;
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
  | Extract<Outcome, { readonly kind: "failed" | "busy" }>;

/** Returns one answer per push, in order. Rejects with the driver's error. */
export async function commitBatch(
  writer: BatchWriter,
  pushes: readonly Push[],
  options: { readonly wait: boolean },
): Promise<readonly Settled[]> {
  const outcomes = await writer.append(pushes, options);
  const addresses = pushes.flatMap((push, index): RowAddress[] => {
    const outcome = outcomes[index];
    return outcome?.kind === "deduplicated" && outcome.seq !== undefined
      ? [{ stream: push.stream, sessionId: push.sessionId, seq: outcome.seq }]
      : [];
  });
  // The rows are committed by now, so a failed look-up is no failure of the batch: only the
  // repeated pushes are sent again, because others without a key would be stored twice.
  const stored = addresses.length === 0 ? [] : await writer.readByAddress(addresses).catch(unread);
  let repeated = 0;
  return pushes.map((push, index): Settled => {
    const outcome = outcomes[index] ?? { kind: "busy" };
    switch (outcome.kind) {
      case "busy":
      case "failed":
        return outcome;
      case "stored":
        return { kind: "stored", rows: storedRows(push, outcome.places) };
      case "deduplicated":
        if (outcome.seq === undefined) return withoutRow(push);
        return "kind" in stored
          ? stored
          : (deduplicatedRow(push, stored[repeated++]) ?? { kind: "busy" });
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

/** A defect would only happen again. */
function unread(error: unknown): Settled {
  if (failureOf(error) !== "defect") return { kind: "busy" };
  return { kind: "refused", error: ServiceError.from(error) };
}

/**
 * A repeated push whose row was stored when the push was judged. Undefined: the row was erased, or
 * lost with its server. The push is sent and judged again.
 */
function deduplicatedRow(push: Push, row: StoredRow | undefined): Settled | undefined {
  if (row === undefined) return undefined;
  // The id is ours: this push was committed, and its answer was lost.
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

function storedRows(push: Push, places: readonly RowPosition[]): readonly StoredRow[] {
  return push.rows.map((row, index) => {
    const place = places[index];
    if (place === undefined) throw new Error("a stored row has no place");
    return storedRow(push, row, place);
  });
}
