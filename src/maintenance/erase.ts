/**
 * Erases one session for good. The session is first marked as deleted, and then takes no push. Its
 * rows are deleted, one batch per transaction. At the end its texts are emptied and the session is
 * marked as erased. A call after a crash continues with the remaining rows.
 *
 *   exists, or deleted ── mark ──► deleted ── batches ──► without rows ── texts ──► erased
 *                                    ▲                        │
 *                                    └──── an import ◄────────┘
 *
 * A hold ends all of it: from its commit on no row is deleted, and the call is refused.
 *
 * An import also stores rows in sessions that are deleted at its source. So the last statement
 * reads the session's heads under its lock. When the heads differ from those before the batches,
 * new rows exist, and these are deleted too. An erased session takes no import.
 */
import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "@session-ledger/base/errors";
import { isCounted, isoOf, storedBytes, TABLE } from "../store/columns.ts";
import { type Database, type Fields, sql, type SQL } from "../store/database.ts";
import { sessionHeld } from "../store/failure.ts";
import type { StreamName } from "../store/rows.ts";
import { importedRows } from "../store/schema.ts";
import { markDeleted } from "../store/deletion.ts";

/** Rows that this call deleted; an earlier, interrupted call may have deleted others. */
export interface ErasedSession {
  readonly messages: bigint;
  readonly events: bigint;
}

interface EraseCall {
  /** Called when the mark is on disk: from then on no caller may get any row of the session. */
  readonly marked: () => void;
  readonly counted: (stream: StreamName, rows: bigint) => void;
  /** Aborted when no caller waits for the end any more. */
  readonly signal: AbortSignal;
}

/** Undefined: the session does not exist, or was erased before. Rejects when it is held. */
export async function eraseSession(
  database: Database,
  sessionId: string,
  call: EraseCall,
): Promise<ErasedSession | undefined> {
  const marked = await markDeleted(database, { id: sessionId, unless: sql`erased_at is not null` });
  if (marked === undefined) return undefined;
  call.marked();
  let messages = 0n;
  let events = 0n;
  // Without heads, another call has erased the session.
  for (let heads: Fields | undefined = marked; heads !== undefined; ) {
    messages += await eraseStream(database, { sessionId, stream: "messages" }, call);
    events += await eraseStream(database, { sessionId, stream: "events" }, call);
    while ((await forgetImported(database, sessionId)) > 0) refuseLeft(call);
    const erased = await database.run(sql`
      update sessions set name = '', phase = null, prompt = null,
        created_by_user_id = null, llm_model = null, agent_id = null, parent_session_id = null,
        forked_at_seq = null, forked_at_message_seq = null,
        labels = null, annotations = null, capabilities = null, open_run_id = null,
        open_turn_seq = null, cancel_seq = null, pending_count = 0, waiting_since = null,
        row_count = 0, payload_bytes = 0, erased_at = clock_timestamp()
      where id = ${sessionId} and erased_at is null and hold is null
        and message_seq = ${String(heads["message_seq"])}::bigint
        and event_seq = ${String(heads["event_seq"])}::bigint returning id`);
    if (erased.length > 0) break;
    [heads] = await database.run(sql`
      select message_seq, event_seq from sessions where id = ${sessionId} and erased_at is null`);
  }
  return { messages, events };
}

async function eraseStream(
  database: Database,
  of: { readonly sessionId: string; readonly stream: StreamName },
  call: EraseCall,
): Promise<bigint> {
  const beginning = {
    ...of,
    upToSeq: undefined,
    recordedUpToMicros: undefined,
    sparesTurns: false,
  };
  let rows = 0n;
  for (;;) {
    refuseLeft(call);
    const beganMs = performance.now();
    const erased = await eraseBatch(database, beginning);
    if (erased !== "busy" && erased.hold !== undefined)
      throw sessionHeld(of.sessionId, erased.hold);
    if (erased !== "busy" && erased.rows === 0n) return rows;
    if (erased !== "busy") {
      rows += erased.rows;
      call.counted(of.stream, erased.rows);
    }
    const busyMs = erased === "busy" ? BUSY_PAUSE_MS : performance.now() - beganMs;
    await pauseAfter(busyMs, call.signal);
  }
}

/** Deletes the record of the rows' places in an imported database. */
async function forgetImported(database: Database, sessionId: string): Promise<number> {
  const forgotten = await database.run(sql`
    delete from ${importedRows} where (session_id, stream, old_seq) in (
      select session_id, stream, old_seq from ${importedRows}
      where session_id = ${sessionId} limit ${ERASED_ROWS_MAX})
    returning 1`);
  return forgotten.length;
}

function refuseLeft({ signal }: EraseCall): void {
  if (!signal.aborted) return;
  if (signal.reason instanceof ServiceError) throw signal.reason;
  const message = "the caller left: the next call erases the rest of the session";
  throw new ServiceError("cancelled", "CANCELLED", message);
}

/**
 * Deletes the first rows of one stream of one session, one bounded batch per statement. The
 * statement takes the session's lock, deletes the rows, and subtracts just those rows from the
 * session's counts: all of it or nothing. A batch locks one session and skips a session that is
 * locked elsewhere. So a batch never waits for a lock and cannot deadlock with ledger_append_pushes. A
 * batch is small, because a push of that session waits for it.
 *
 *   locked: lock, or skip ──► cut: how far ──► deleted ──► counted ──► updated: the session's counts
 *
 * It is one statement because a transaction of several ends the process when it loses its
 * connection between two of them (store/database.ts). Its snapshot is then older than its lock, unlike
 * in ledger_append_pushes. That is correct here: rows at the beginning of a stream never change and no row
 * is added before them, so the snapshot can be wrong in one way only: it may still show rows that
 * another batch has deleted. Such a row is not deleted again and not counted. When all rows of the
 * batch are such rows, another batch held the session a moment ago, and the answer is `busy`, and
 * never "no rows left". The counts are subtracted from the locked version of the session's row:
 * PostgreSQL follows the row to its newest version. A function deletes the texts that search has of the
 * rows: it sees all of them, because the lock also excludes the instance that stores texts.
 */

/**
 * 500 rows of 600 bytes or 8 KB, or 4 MiB of larger ones, took 22 to 28 ms at the median and 108 ms
 * at most (PostgreSQL 18.4, two cores shared with other work, November 2026).
 */
const ERASED_ROWS_MAX = 500;
/** Stored bytes; one row may have more. PostgreSQL stores each 2 KB of a large row as a row. */
const ERASED_BYTES_MAX = 4 * 1024 * 1024;

/** Rows from the beginning of a stream. */
export interface Beginning {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** Only rows that begin at or below this number; undefined: any. */
  readonly upToSeq: bigint | undefined;
  /** Only rows before the first one that was stored later than this; undefined: any. */
  readonly recordedUpToMicros: bigint | undefined;
  /** True: waiting messages stay, and those of the open run's turn; for claimed sessions only. */
  readonly sparesTurns: boolean;
}

interface ErasedRows {
  readonly rows: bigint;
  /** Stored bytes of the deleted rows. */
  readonly bytes: bigint;
}

interface ErasedBatch extends ErasedRows {
  /** Why the session is held; then no row was deleted. */
  readonly hold: string | undefined;
}

/** `busy`: another transaction locks or locked the session. No rows and no hold: nothing is left. */
export async function eraseBatch(
  database: Database,
  beginning: Beginning,
): Promise<ErasedBatch | "busy"> {
  // Not prepared: a plan made while the tables were small would scan them when they are large.
  const [fields] = await database.run(eraseStatement(beginning), { prepare: false });
  const erased = erasedOf(fields);
  if (fields?.["is_locked"] !== true) return "busy";
  const hold = typeof fields["hold"] === "string" ? fields["hold"] : undefined;
  return erased.rows === 0n && fields["saw_rows"] === true ? "busy" : { ...erased, hold };
}

/** A part of the rows that `eraseBatch` would delete, and the place to continue. */
interface CountedRows extends ErasedRows {
  /** The number of the last counted row; undefined: no row. */
  readonly lastSeq: bigint | undefined;
}

/** Counts the next rows of a beginning, as many as one statement may read; for dry runs. */
export async function countRows(
  database: Database,
  beginning: Beginning,
  look: { readonly after: bigint; readonly rowsMax: number },
): Promise<CountedRows> {
  const [fields] = await database.run(sql`
    select count(*) as rows, coalesce(sum(size), 0) as bytes, max(seq) as last_seq
    from (${beginningOf(beginning, look)}) counted where is_old and ${isErasable(
      beginning,
      sql`(select ${SPARED_FROM} from sessions where id = ${beginning.sessionId})`,
    )}`);
  const last = fields?.["last_seq"];
  return { ...erasedOf(fields), lastSeq: typeof last === "string" ? BigInt(last) : undefined };
}

/** Exported for the plan test. */
export function eraseStatement(beginning: Beginning): SQL {
  const { sessionId, stream } = beginning;
  return sql`
    with locked as materialized (
      select ${SPARED_FROM} as spared_from, turn_seq, hold from sessions where id = ${sessionId}
      for update skip locked
    ), cut as materialized (
      select max(seq) as seq
      from (${beginningOf(beginning, { after: 0n, rowsMax: ERASED_ROWS_MAX })}) counted
      where is_old and (bytes <= ${ERASED_BYTES_MAX} or place = 1) and exists (select from locked where hold is null)
        and ${isErasable(beginning, sql`(select spared_from from locked)`)}
    ), deleted as (
      delete from ${TABLE[stream]}
      where session_id = ${sessionId} and seq <= (select seq from cut)
      returning ${storedBytes(stream)} as size, ${isPending(stream)} as is_pending,
        ${isCounted(stream)} as is_counted
    ), counted as materialized (
      select count(*) as rows, coalesce(sum(size), 0) as bytes,
        count(*) filter (where is_pending) as pending,
        count(*) filter (where is_counted) as counted_rows,
        coalesce(sum(size) filter (where is_counted), 0) as counted_bytes
      from deleted
    ), updated as (
      update sessions set row_count = row_count - counted.counted_rows,
        payload_bytes = payload_bytes - counted.counted_bytes,
        pending_count = pending_count - counted.pending,
        waiting_since = case when pending_count > counted.pending then waiting_since end
      from counted where id = ${sessionId} and counted.rows > 0
    )
    select exists (select from locked) as is_locked, (select hold from locked) as hold,
      (select seq from cut) is not null as saw_rows,
      case when rows > 0 then ledger_forget_texts(${sessionId}, ${stream}, (select seq from cut)) end
        as texts, rows, bytes
    from counted`;
}

/** Messages above this number wait for a turn, or belong to that of the open run. */
const SPARED_FROM = sql`case when has_claimed then coalesce(open_turn_seq, turn_seq) end`;

function isErasable({ sparesTurns }: Beginning, sparedFrom: SQL): SQL {
  return sparesTurns ? sql`seq <= coalesce(${sparedFrom}, 9223372036854775807)` : sql`true`;
}

/** True for a message that was counted as waiting. */
function isPending(stream: StreamName): SQL {
  return stream === "messages"
    ? sql`event_type = 'user' and seq > (select turn_seq from locked)`
    : sql`false`;
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

const PAUSE_MAX_MS = 1_000;
/** The pause before another try on a locked session. */
export const BUSY_PAUSE_MS = 25;

/**
 * Pauses between two batches for as long as the batch took (at most 1 s), so that pushes get the
 * database for that time. Ends at once, and without an error, when the signal aborts.
 */
export async function pauseAfter(busyMs: number, signal: AbortSignal): Promise<void> {
  const pauseMs = Math.min(busyMs, PAUSE_MAX_MS);
  await delay(pauseMs, undefined, { signal }).catch(() => undefined);
}
