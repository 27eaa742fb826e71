/**
 * Deletes the first rows of a stream of one session, one bounded batch a transaction: the session's
 * lock, the rows, what the session holds less by just those. A batch holds one session, and a session
 * that somebody else holds is left for later, so that it waits for nobody and can be in no deadlock
 * with ledger_append; and it is small, because a push of that session waits for it.
 *
 * Lock and look are different statements, as in ledger_append: rows that another batch deleted before
 * the lock was ours are not seen, and so not counted twice.
 */
import { type SQL, sql } from "drizzle-orm";
import { TABLE } from "../columns.ts";
import type { Database, Fields } from "../database.ts";
import type { StreamName } from "../rows.ts";
import { isoOf } from "../times.ts";

/**
 * A push that waits for a batch waits for a small part of lock_timeout: 500 rows of 600 bytes or 8 KB,
 * or 4 MiB of larger ones, took 22 to 28 ms at the median and 108 ms at most (PostgreSQL 18.4, two
 * cores shared with other work, November 2026).
 */
export const ERASED_ROWS_MAX = 500;
/** Of payloads; one row may have more. Each 2 KB of a large one is a row of its own to PostgreSQL. */
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
  /** Of payloads. */
  readonly bytes: bigint;
}

/** `busy`: somebody holds the session. No rows: nothing of the beginning is left. */
export function eraseBatch(database: Database, beginning: Beginning): Promise<ErasedRows | "busy"> {
  const { sessionId } = beginning;
  return database.query((drizzle) =>
    drizzle.transaction(async (transaction) => {
      const held = await transaction.execute(
        sql`select from sessions where id = ${sessionId} for no key update skip locked`,
      );
      if (held.length === 0) return "busy";
      const [gone] = await transaction.execute<Fields>(deleteStatement(beginning));
      const erased = erasedOf(gone);
      if (erased.rows === 0n) return erased;
      await transaction.execute(sql`
        update sessions set row_count = row_count - ${erased.rows.toString()}::bigint,
          payload_bytes = payload_bytes - ${erased.bytes.toString()}::bigint
        where id = ${sessionId}`);
      return erased;
    }),
  );
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
export function deleteStatement(beginning: Beginning): SQL {
  return sql`
    with cut as (
      select max(seq) as seq
      from (${beginningOf(beginning, { after: 0n, rowsMax: ERASED_ROWS_MAX })}) counted
      where is_old and (bytes <= ${ERASED_BYTES_MAX} or place = 1)
    ), gone as (
      delete from ${TABLE[beginning.stream]}
      where session_id = ${beginning.sessionId} and seq <= (select seq from cut)
      returning octet_length(payload) as size
    )
    select count(*) as rows, coalesce(sum(size), 0) as bytes from gone`;
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
      select seq, recorded_at, octet_length(payload) as size from ${TABLE[stream]}
      where session_id = ${sessionId} and seq > ${after.toString()}::bigint ${end}
      order by seq limit ${rowsMax}
    ) beginning
    window upwards as (order by seq)`;
}

function erasedOf(fields: Fields | undefined): ErasedRows {
  return { rows: BigInt(String(fields?.["rows"])), bytes: BigInt(String(fields?.["bytes"])) };
}
