import type { RowOf, StreamName } from "./rows.ts";
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
export type LedgerReader = Pick<StoreReader, "pageAfter" | "heads" | "resolveCursor" | "lostOf"> &
  Partial<Pick<StoreReader, "isSharded">>;

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
    /** A question for several sessions needs all nodes of a sharded engine. */
    isSharded: database.sessionCallsMax !== undefined,
    readPage: <S extends StreamName>(request: PageRequest<S>) => readPage(database, request),
    transcriptRowsAfter: (page: TranscriptRowsAfter) => readTranscriptRows(database, page),
    transcriptMessagesAfter: (page: TranscriptMessagesAfter) =>
      readTranscriptMessages(database, page),
    async pageAfter<S extends StreamName>(request: PageAfter<S>): Promise<readonly RowOf<S>[]> {
      return (await readPage(database, request)).rows;
    },
    /** One query for all. A missing session is not in the map; a deleted one is, with `deleted`. */
    heads: (sessionIds: readonly string[]) => readHeads(database, sessionIds),
    /**
     * Resolves a caller's `after_seq` (0 or more, at most the head) to a cursor. The first number of
     * a merged row means that the row was seen; a number inside of it, that the row is delivered
     * again.
     */
    resolveCursor: (request: CursorRequest) => resolveCursor(database, request),
    /**
     * The positions that do not hold, because the database went back: the head is lower, or another
     * row has the number. A number without a row was erased, and is valid.
     */
    lostOf: (seen: readonly Seen[]) => lostOf(database, seen),
  };
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

async function lostOf(database: Database, all: readonly Seen[]): Promise<ReadonlySet<Seen>> {
  const lost = new Set<Seen>();
  for (const seen of all) {
    const [now] = await database.run(lostStatement(seen));
    database.onAnswer(now?.["server"]);
    if (now?.["other"] === true || now?.["shorter"] === true) lost.add(seen);
  }
  return lost;
}

function lostStatement({ stream, sessionId, head, row }: Seen): SQL {
  const [counter, count] =
    stream === "events" ? ["event_seq", "event_count"] : ["message_seq", "1"];
  return sql`
    select ${SERVER} as server, coalesce(
        (select ${sql.raw(counter)} from sessions where id = ${sessionId}), 0) < ${head.toString()}::bigint as shorter,
      (select seq + ${sql.raw(count)} > ${row?.seq.toString() ?? null}::bigint and id <> ${row?.id ?? null}::uuid
        from ${TABLE[stream]} where session_id = ${sessionId} and seq <= ${row?.seq.toString() ?? null}::bigint
        order by seq desc limit 1) as other`;
}
