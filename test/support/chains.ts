/** The chains of rows: how older versions leave them, and what a person corrects who has changed rows. */
import type { Database } from "../../src/store/database.ts";
import { type SQL, sql } from "../../src/store/database.ts";
import { isCounted, storedBytes } from "../../src/store/columns.ts";

const COLUMNS = ["message", "event"].flatMap((stream) =>
  ["", "_seq", "_from", "_cut"].map((part) => `${stream}_chain${part}`),
);
export const CHAINS = sql.raw(COLUMNS.join(", "));

/** Rows and counters change in `work`, and the chains do not, as in a function of an older version. */
export async function withoutChains(
  database: Database,
  sessionId: string,
  work: () => Promise<unknown>,
): Promise<void> {
  const texts = sql.raw(COLUMNS.map((column) => `${column}::text`).join(", "));
  const [before] = await database.run(sql`select ${texts} from sessions where id = ${sessionId}`);
  await work();
  const set = COLUMNS.map((column) => {
    const type = sql.raw(/_chain(?:_cut)?$/.test(column) ? "bytea" : "bigint");
    return sql`${sql.raw(column)} = ${before?.[column] ?? null}::text::${type}`;
  });
  await database.run(sql`update sessions set ${sql.join(set, sql`, `)} where id = ${sessionId}`);
}

/** New chains for rows that were changed, as a person makes them who may write everything. */
export async function makeChainsAgain(database: Database, sessionId: string): Promise<void> {
  const none = COLUMNS.map((column) => `${column} = null`).join(", ");
  await database.run(sql`update sessions set ${sql.raw(none)} where id = ${sessionId}`);
  await database.run(sql`select ledger_extend_chains(${sessionId}::text, 0, 0)`);
}

/** Corrects everything in a session but its chains, after its rows were changed. */
export function correctCounts(sessionId: string): SQL {
  return sql`
    update sessions set message_seq = m.last, message_chain_seq = m.last, event_seq = e.last,
      event_chain_seq = e.last, row_count = m.rows + e.rows, payload_bytes = m.bytes + e.bytes
    from (select coalesce(max(seq), 0) as last, count(*) as rows, coalesce(sum(${storedBytes("messages")}), 0) as bytes
        from session_messages where session_id = ${sessionId}) m,
      (select coalesce(max(seq + event_count - 1), 0) as last,
        count(*) filter (where ${isCounted("events")}) as rows,
        coalesce(sum(${storedBytes("events")}) filter (where ${isCounted("events")}), 0) as bytes
        from session_events where session_id = ${sessionId}) e
    where id = ${sessionId}`;
}
