/**
 * Deletes the first rows of a stream of one session, one bounded batch a statement: the session's lock,
 * the rows, what the session holds less by just those, all of it or nothing. A batch holds one session,
 * and a session that somebody else holds is left for later, so that it waits for nobody and can be in no
 * deadlock with ledger_append; and it is small, because a push of that session waits for it.
 *
 *   held: lock, or skip ──► cut: how far ──► gone: delete ──► counted ──► kept: the session's counts
 *
 * It is one statement because a transaction of several ends the process when it loses its connection
 * between two of them (transaction.ts). Its snapshot is then older than its lock, other than in
 * ledger_append, and that is right here: rows at the beginning of a stream never change and none is added
 * in front of one, so the snapshot can err in one way only. Another batch may have deleted rows that it
 * still shows. Such a row is not deleted again, so not counted; when all of them are, the session was
 * held by somebody a moment ago, and the answer is `busy`, never that nothing is left. The counts are
 * subtracted from the row as it is under the lock: PostgreSQL follows it to its newest version.
 */
import { type SQL, sql } from "drizzle-orm";
import { storedBytes, TABLE } from "../store/columns.ts";
import type { Database } from "../store/database.ts";
import type { StreamName } from "../store/rows.ts";
import { isoOf } from "../store/times.ts";
import type { Fields } from "../store/transaction.ts";

/**
 * A push that waits for a batch waits for a small part of lock_timeout: 500 rows of 600 bytes or 8 KB,
 * or 4 MiB of larger ones, took 22 to 28 ms at the median and 108 ms at most (PostgreSQL 18.4, two
 * cores shared with other work, November 2026).
 */
export const ERASED_ROWS_MAX = 500;
/** Of what is stored; one row may have more. Each 2 KB of a large one is a row of its own to PostgreSQL. */
const ERASED_BYTES_MAX = 4 * 1024 * 1024;

/** Rows from the beginning of a stream. */
export interface Beginning {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** Rows that begin up to this number; undefined: any. */
  readonly upToSeq: bigint | undefined;
  /** Rows before the first one that was stored later than this; undefined: any. */
  readonly recordedUpToMicros: bigint | undefined;
}

export interface ErasedRows {
  readonly rows: bigint;
  /** What was stored of them. */
  readonly bytes: bigint;
}

/** `busy`: somebody holds the session, or did. No rows: nothing of the beginning is left. */
export async function eraseBatch(
  database: Database,
  beginning: Beginning,
): Promise<ErasedRows | "busy"> {
  // Not prepared: a plan made while the tables were small would scan them when they are large.
  const [fields] = await database.query((drizzle) =>
    drizzle.execute<Fields>(eraseStatement(beginning)),
  );
  const erased = erasedOf(fields);
  if (fields?.["is_held"] !== true) return "busy";
  return erased.rows === 0n && fields["saw_rows"] === true ? "busy" : erased;
}

/** A part of what `eraseBatch` would delete, and where to go on. */
export interface CountedRows extends ErasedRows {
  /** The last one; undefined: there was none. */
  readonly lastSeq: bigint | undefined;
}

/** The rows of a beginning behind a number, as many as one look takes; for telling what would go. */
export async function countRows(
  database: Database,
  beginning: Beginning,
  look: { readonly after: bigint; readonly rowsMax: number },
): Promise<CountedRows> {
  const [fields] = await database.run(sql`
    select count(*) as rows, coalesce(sum(size), 0) as bytes, max(seq) as last_seq
    from (${beginningOf(beginning, look)}) counted where is_old`);
  const last = fields?.["last_seq"];
  return { ...erasedOf(fields), lastSeq: typeof last === "string" ? BigInt(last) : undefined };
}

/** Exported for the plan test. */
export function eraseStatement(beginning: Beginning): SQL {
  const { sessionId, stream } = beginning;
  return sql`
    with held as materialized (
      select id from sessions where id = ${sessionId} for no key update skip locked
    ), cut as materialized (
      select max(seq) as seq
      from (${beginningOf(beginning, { after: 0n, rowsMax: ERASED_ROWS_MAX })}) counted
      where is_old and (bytes <= ${ERASED_BYTES_MAX} or place = 1) and exists (select from held)
    ), gone as (
      delete from ${TABLE[stream]}
      where session_id = ${sessionId} and seq <= (select seq from cut)
      returning ${storedBytes(stream)} as size
    ), counted as materialized (
      select count(*) as rows, coalesce(sum(size), 0) as bytes from gone
    ), kept as (
      update sessions set row_count = row_count - counted.rows,
        payload_bytes = payload_bytes - counted.bytes
      from counted where id = ${sessionId} and counted.rows > 0
    )
    select exists (select from held) as is_held, (select seq from cut) is not null as saw_rows,
      rows, bytes from counted`;
}

function beginningOf(
  { sessionId, stream, upToSeq, recordedUpToMicros }: Beginning,
  { after, rowsMax }: { readonly after: bigint; readonly rowsMax: number },
): SQL {
  const end = upToSeq === undefined ? sql`` : sql`and seq <= ${upToSeq.toString()}::bigint`;
  const isOld =
    recordedUpToMicros === undefined
      ? sql`true`
      : sql`bool_and(recorded_at <= ${isoOf(recordedUpToMicros)}::timestamptz) over upwards`;
  return sql`
    select seq, size, sum(size) over upwards as bytes, row_number() over upwards as place,
      ${isOld} as is_old
    from (
      select seq, recorded_at, ${storedBytes(stream)} as size from ${TABLE[stream]}
      where session_id = ${sessionId} and seq > ${after.toString()}::bigint ${end}
      order by seq limit ${rowsMax}
    ) beginning
    window upwards as (order by seq)`;
}

function erasedOf(fields: Fields | undefined): ErasedRows {
  return { rows: BigInt(String(fields?.["rows"])), bytes: BigInt(String(fields?.["bytes"])) };
}
