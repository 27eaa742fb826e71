/** Event rows of one session, put into the table by the store's own append, in large batches. */
import { append } from "../../src/store/append.ts";
import { createDatabase } from "../../src/store/database.ts";
import { type EventRow, type Push, storedBytesOf } from "../../src/store/rows.ts";
import { newEventRow } from "../../src/handlers/push.ts";
import type { Bench } from "./bench.ts";
import type { Ledger } from "./servers.ts";

const BATCH_ROWS = 1_000;
const STATEMENT_LIMIT_MS = 30_000;

/** 2026-01-01T00:00:00Z. */
export const BEGAN_MICROS = 1_767_225_600_000_000n;

const EMPTY = {
  createdAtMicros: BEGAN_MICROS,
  completedAtMicros: undefined,
  eventCount: 1,
  conformant: true,
  mark: undefined,
};

type Row = Pick<EventRow, "eventType" | "payload"> & Partial<EventRow>;

export async function storeRows(
  bench: Bench,
  ledger: Ledger,
  rows: readonly { readonly sessionId: string; readonly row: Row }[],
): Promise<void> {
  const database = createDatabase({
    url: () => ledger.databaseUrl,
    connectionsMax: 1,
    statementTimeoutMs: STATEMENT_LIMIT_MS,
    lockTimeoutMs: STATEMENT_LIMIT_MS,
  });
  await database.start();
  try {
    for (let from = 0; from < rows.length; from += BATCH_ROWS) {
      bench.signal.throwIfAborted();
      const pushes = rows.slice(from, from + BATCH_ROWS).map(pushOf);
      await append(database, pushes, { createMissing: true, wait: true });
    }
  } finally {
    await database.stop();
  }
  // As autovacuum does by and by: without it the first reads write hint bits as well.
  await ledger.sql`vacuum analyze session_events`;
}

function pushOf({ sessionId, row }: { readonly sessionId: string; readonly row: Row }): Push {
  const rows = [
    {
      ...newEventRow({ ...EMPTY, eventType: row.eventType, payload: row.payload }, undefined),
      ...row,
    },
  ];
  const unkeyed = { key: undefined, digest: undefined, epoch: undefined, range: undefined };
  const bytes = storedBytesOf(rows);
  return { sessionId, stream: "events", ...unkeyed, actor: undefined, rows, bytes };
}
