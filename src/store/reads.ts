/** The reads that live delivery stands on, over the real database. */
import { sql } from "drizzle-orm";
import { TABLE } from "./columns.ts";
import type { Database } from "./database.ts";
import { readPage } from "./pages.ts";
import type { LedgerReader, PageAfter } from "./reader.ts";
import type { RowOf, StreamName } from "./rows.ts";
import { readHeads } from "./sessions.ts";

export function createReader(database: Database): LedgerReader {
  return {
    async pageAfter<S extends StreamName>(request: PageAfter<S>): Promise<readonly RowOf<S>[]> {
      const page = await readPage(database, {
        ...request,
        before: undefined,
        descending: false,
        filter: undefined,
      });
      return page.rows;
    },
    heads: (sessionIds) => readHeads(database, sessionIds),
    async resolveCursor({ stream, sessionId, afterSeq }) {
      if (stream === "messages" || afterSeq === 0n) return afterSeq;
      const [row] = await database.run(sql`
        select seq, event_count from ${TABLE[stream]}
        where session_id = ${sessionId} and seq <= ${afterSeq.toString()}::bigint
        order by seq desc limit 1`);
      if (row === undefined) return afterSeq; // Erased, or nothing before it.
      const seq = BigInt(String(row["seq"]));
      const last = seq + BigInt(String(row["event_count"])) - 1n;
      if (afterSeq >= last) return afterSeq;
      return afterSeq === seq ? last : seq - 1n;
    },
  };
}
