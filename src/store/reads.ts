/** The reads that live delivery stands on, over the real database. */
import { type SQL, sql } from "drizzle-orm";
import { TABLE } from "./columns.ts";
import type { Database } from "./database.ts";
import { readPage } from "./pages.ts";
import type { CursorRequest, LedgerReader, PageAfter } from "./reader.ts";
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
    resolveCursor: (request) => resolveCursor(database, request),
  };
}

async function resolveCursor(database: Database, request: CursorRequest): Promise<bigint> {
  const { stream, afterSeq, expand = false } = request;
  if (stream === "messages" || afterSeq === 0n) return afterSeq;
  const [row] = await database.run(holderStatement(request));
  if (row === undefined) return afterSeq; // Erased, or nothing before it.
  const seq = BigInt(String(row["seq"]));
  const last = seq + BigInt(String(row["event_count"])) - 1n;
  if (afterSeq >= last) return afterSeq;
  if (expand) return row["indexed"] === true ? seq - 1n : last;
  return afterSeq === seq ? last : seq - 1n;
}

/** The event row that holds a number, or the last one before it. Exported for the plan test. */
export function holderStatement({ sessionId, afterSeq }: CursorRequest): SQL {
  return sql`
    select seq, event_count, fragments is not null as indexed from ${TABLE.events}
    where session_id = ${sessionId} and seq <= ${afterSeq.toString()}::bigint
    order by seq desc limit 1`;
}
