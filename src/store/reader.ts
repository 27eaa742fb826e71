import type { RowOf, SessionHead, StreamName } from "./rows.ts";
import { type SQL, sql } from "drizzle-orm";
import { TABLE } from "./columns.ts";
import { type Database, SERVER } from "./database.ts";
import {
  type PageAfter,
  type PageRequest,
  readPage,
  readTranscriptRows,
  type TranscriptRowsAfter,
} from "./pages.ts";
import { readHeads } from "./sessions.ts";
import { readTranscriptMessages, type TranscriptMessagesAfter } from "./transcript-messages.ts";

/** The reads of live delivery. */
export interface LedgerReader {
  pageAfter<S extends StreamName>(request: PageAfter<S>): Promise<readonly RowOf<S>[]>;
  /** One query for all. A missing session is not in the map; a deleted one is, with `deleted`. */
  heads(sessionIds: readonly string[]): Promise<ReadonlyMap<string, SessionHead>>;
  /**
   * Resolves a caller's `after_seq` (0 or more, at most the head) to a cursor. The first number of
   * a merged row means that the row was seen; a number inside of it, that the row is delivered
   * again.
   */
  resolveCursor(request: CursorRequest): Promise<bigint>;
  /**
   * The positions that do not hold, because the database went back: the head is lower, or another
   * row has the number. A number without a row was erased, and is valid. One statement for all.
   */
  lostOf(seen: readonly Seen[]): Promise<ReadonlySet<Seen>>;
}

/** The known position of a stream of a session, from before another server process took over. */
export interface Seen {
  readonly stream: StreamName;
  readonly sessionId: string;
  /** A number that was committed. */
  readonly head: bigint;
  /** The last row that was read. */
  readonly row: { readonly seq: bigint; readonly id: string } | undefined;
}

export interface CursorRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly afterSeq: bigint;
  /**
   * The caller reads raw events: a row with an index and events after the number is delivered
   * again, and expanded from it. For a row without an index, its first number means that it was
   * seen.
   */
  readonly expand?: boolean;
}

export type StoreReader = ReturnType<typeof createReader>;

/** The reads of live delivery, of pages, of transcripts and of the index of search. */
export function createReader(database: Database) {
  return {
    readPage: <S extends StreamName>(request: PageRequest<S>) => readPage(database, request),
    transcriptRowsAfter: (page: TranscriptRowsAfter) => readTranscriptRows(database, page),
    transcriptMessagesAfter: (page: TranscriptMessagesAfter) =>
      readTranscriptMessages(database, page),
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
    lostOf: (seen) => lostOf(database, seen),
  } satisfies LedgerReader & Readonly<Record<string, unknown>>;
}

async function resolveCursor(database: Database, request: CursorRequest): Promise<bigint> {
  const { stream, afterSeq, expand = false } = request;
  if (stream === "messages" || afterSeq === 0n) return afterSeq;
  const [row] = await database.run(holderStatement(request));
  if (row === undefined) return afterSeq; // The row was erased, or no row is before the number.
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

async function lostOf(database: Database, seen: readonly Seen[]): Promise<ReadonlySet<Seen>> {
  const texts = seen.map(({ stream, sessionId, head, row }, at) => ({
    at,
    e: stream === "events",
    s: sessionId,
    h: head.toString(),
    n: row?.seq.toString(),
    id: row?.id,
  }));
  const rows = await database.run(sql`
    select seen.at, ${SERVER} as server, now.after > seen.n and now.id <> seen.id as other,
      coalesce(case when seen.e then s.event_seq else s.message_seq end, 0) < seen.h as shorter
    from json_to_recordset(${JSON.stringify(texts)}::text::json)
      as seen(at integer, e boolean, s text, h bigint, n bigint, id uuid)
    left join sessions s on s.id = seen.s
    left join lateral (
      (select id, seq + event_count as after from ${TABLE.events}
        where seen.e and session_id = seen.s and seq <= seen.n order by seq desc limit 1)
      union all
      (select id, seq + 1 from ${TABLE.messages}
        where not seen.e and session_id = seen.s and seq = seen.n)
    ) now on true`);
  database.onAnswer(rows[0]?.["server"]);
  const lost = new Set<number>();
  for (const { at, other, shorter } of rows) {
    if (other === true || shorter === true) lost.add(Number(at));
  }
  return new Set(seen.filter((_, at) => lost.has(at)));
}
