import { v7 } from "uuid";
import type { ValidatedEvent } from "@session-ledger/agui/split-event";
import type { Metrics } from "../observability/metrics.ts";
import type { NewRow } from "../store/rows.ts";

/** The row of an accepted event. Other fields of `event`, such as its place, are not stored. */
export function newEventRow(
  event: Omit<NewRow, "id" | "fragments" | "sender" | "sentAtMicros">,
  fragments: Uint8Array | undefined,
): NewRow {
  return { ...event, id: rowId(), fragments, sender: undefined, sentAtMicros: undefined };
}

export type RenamedRow = Pick<ValidatedEvent, "renamed">;

/** For rows that a push has stored. */
export function countRenamed(
  { aguiRenamed }: Pick<Metrics, "aguiRenamed">,
  rows: readonly RenamedRow[],
): void {
  for (const { renamed } of rows) if (renamed !== undefined) aguiRenamed.inc({ field: renamed });
}

const RANDOM_BYTES = 16;
const pool = new Uint8Array(256 * RANDOM_BYTES);
let used = pool.length;

/**
 * UUIDv7 for rows, with random bytes for 256 ids at a time: the `uuid` package asks the system for
 * each id, which took 4 % of a busy service.
 */
export function rowId(): string {
  if (used === pool.length) {
    crypto.getRandomValues(pool);
    used = 0;
  }
  const random = pool.subarray(used, used + RANDOM_BYTES);
  used += RANDOM_BYTES;
  return v7({ random });
}
