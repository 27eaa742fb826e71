import { v7 } from "uuid";
import type { ValidatedEvent } from "@session-ledger/agui/split-event";
import type { Metrics } from "../observability/metrics.ts";
import type { EventRow, MessageRow } from "../store/rows.ts";

/** The row of an accepted event, before its commit. Other fields of `event` are not stored. */
export function newEventRow(
  event: Omit<ValidatedEvent, "address">,
  fragments: Uint8Array | undefined,
): EventRow {
  const { mark } = event;
  return {
    stream: "events",
    sessionId: "",
    seq: 0n,
    id: rowId(),
    eventType: event.eventType,
    payload: event.payload,
    createdAtMicros: event.createdAtMicros,
    completedAtMicros: event.completedAtMicros,
    eventCount: event.eventCount,
    runId: mark?.kind === "open" ? mark.runId : "",
    fragments,
    conformant: event.conformant,
  };
}

/** The row of a message before its commit. */
export function newMessageRow(
  message: Omit<MessageRow, "stream" | "sessionId" | "seq" | "id">,
): MessageRow {
  return { stream: "messages", sessionId: "", seq: 0n, id: rowId(), ...message };
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
