import { sql } from "drizzle-orm";
import { storedBytes } from "../../src/store/columns.ts";
import type { TestLedger } from "./ledger.ts";

interface Held {
  readonly rows: number;
  readonly bytes: number;
}

/** The size of a session: as its row counts it, and as the tables have it. */
export async function heldBy(
  { database }: Pick<TestLedger, "database">,
  sessionId: string,
): Promise<{ readonly kept: Held; readonly found: Held }> {
  const [row] = await database.run(sql`
    select s.row_count::int as kept_rows, s.payload_bytes::int as kept_bytes,
      count(r.bytes)::int as found_rows, coalesce(sum(r.bytes), 0)::int as found_bytes
    from sessions s left join (
      select session_id, ${storedBytes("messages")} as bytes from session_messages
      union all select session_id, ${storedBytes("events")} from session_events
    ) r on r.session_id = s.id
    where s.id = ${sessionId} group by s.id`);
  const number = (name: string): number => Number(row?.[name]);
  return {
    kept: { rows: number("kept_rows"), bytes: number("kept_bytes") },
    found: { rows: number("found_rows"), bytes: number("found_bytes") },
  };
}
