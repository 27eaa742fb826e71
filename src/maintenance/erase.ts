/**
 * Erases one session for good (docs/retention.md). A call after a crash continues with the remaining
 * rows.
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
import { isoOf, optionalBigintOf, optionalTextOf, storedBytes, TABLE } from "../store/columns.ts";
import { bigintOf, type Database, type Fields, sql } from "../store/database.ts";
import { sessionHeld } from "../store/failure.ts";
import type { StreamName } from "../store/rows.ts";
import { importedRows } from "../store/schema.ts";
import { NOW } from "../store/sessions.ts";
import { markDeleted } from "../store/deletion.ts";

interface EraseCall {
  /** Called when the mark is on disk: from then on no caller may get any row of the session. */
  readonly marked: () => void;
  readonly counted: (stream: StreamName, rows: bigint) => void;
  /** Aborted when no caller waits for the end any more. */
  readonly signal: AbortSignal;
}

/**
 * Resolves with the rows that this call deleted; an earlier, interrupted call may have deleted others.
 * Undefined: the session does not exist, or was erased before. Rejects when it is held.
 */
export async function eraseSession(
  database: Database,
  sessionId: string,
  call: EraseCall,
): Promise<{ readonly messages: bigint; readonly events: bigint } | undefined> {
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
        row_count = 0, payload_bytes = 0, erased_at = ${NOW}
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
  let rows = 0n;
  for (;;) {
    refuseLeft(call);
    const beganMs = performance.now();
    const erased = await eraseBatch(database, of);
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
    delete from ${importedRows} where session_id = ${sessionId} and (stream, old_seq) in (
      select stream, old_seq from ${importedRows}
      where session_id = ${sessionId} limit ${ERASED_ROWS_MAX})
    returning old_seq`);
  return forgotten.length;
}

function refuseLeft({ signal }: EraseCall): void {
  if (!signal.aborted) return;
  if (signal.reason instanceof ServiceError) throw signal.reason;
  const message = "the caller left: the next call erases the rest of the session";
  throw new ServiceError("cancelled", "CANCELLED", message);
}

/**
 * Deletes the first rows of one stream of one session, one bounded batch per statement: the function
 * ledger_erase_rows (store/migrations/session.sql). A batch locks one session and skips a session that is
 * locked elsewhere. So a batch never waits for a lock and cannot deadlock with ledger_append_pushes. A
 * batch is small, because a push of that session waits for it.
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
  readonly upToSeq?: bigint;
  /** Only rows before the first one that was stored later than this; undefined: any. */
  readonly recordedUpToMicros?: bigint;
  /** True: waiting messages stay, and those of the open run's turn; for claimed sessions only. */
  readonly sparesTurns?: boolean;
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

/** `busy`: another transaction locks the session. No rows and no hold: nothing is left. */
export async function eraseBatch(
  database: Database,
  { sessionId, stream, upToSeq, recordedUpToMicros: recorded, sparesTurns = false }: Beginning,
): Promise<ErasedBatch | "busy"> {
  const [fields] = await database.run(sql`
    select is_locked, hold, rows, bytes from ledger_erase_rows(
      ${sessionId}::text, ${stream}::text, ${upToSeq?.toString() ?? null}::text::bigint,
      ${recorded === undefined ? null : isoOf(recorded)}::text::timestamptz, ${sparesTurns}::boolean,
      ${ERASED_ROWS_MAX}::integer, ${ERASED_BYTES_MAX}::bigint)`);
  if (fields?.["is_locked"] !== true) return "busy";
  return { ...erasedOf(fields), hold: optionalTextOf(fields["hold"]) };
}

interface SessionSize {
  readonly id: string;
  readonly rows: number;
  readonly bytes: number;
}

/** Sessions whose rows fit one batch together; a large one is alone, and each on a sharded engine. */
export function batchesOf(
  { sessionCallsMax }: Pick<Database, "sessionCallsMax">,
  sessions: readonly SessionSize[],
): readonly (readonly string[])[] {
  if (sessionCallsMax !== undefined) return sessions.map(({ id }) => [id]);
  const batches: string[][] = [];
  let [rows, bytes] = [Number.POSITIVE_INFINITY, 0];
  for (const session of sessions) {
    rows += session.rows;
    bytes += session.bytes;
    if (rows > ERASED_ROWS_MAX || bytes > ERASED_BYTES_MAX) {
      batches.push([]);
      ({ rows, bytes } = session);
    }
    batches.at(-1)?.push(session.id);
  }
  return batches;
}

interface RetainRequest {
  readonly ids: readonly string[];
  readonly cutoffMicros: bigint;
  /** The time at which the pass began, by the clock of the database. */
  readonly beganMicros: bigint;
}

/**
 * Erases what is old of small sessions, in one transaction: the function ledger_retain_sessions
 * (store/migrations/retain.sql). Resolves with those that are done; the others are large, held or locked.
 */
export async function retainSessions(
  database: Database,
  { ids, cutoffMicros, beganMicros }: RetainRequest,
) {
  const rows = await database.run(sql`
    select session_id, messages, events, bytes from ledger_retain_sessions(
      array(select json_array_elements_text(${JSON.stringify(ids)}::text::json)),
      ${isoOf(cutoffMicros)}::timestamptz, ${isoOf(beganMicros)}::timestamptz,
      ${ERASED_ROWS_MAX}::integer, ${ERASED_BYTES_MAX}::bigint)`);
  return rows.map((row) => ({
    sessionId: String(row["session_id"]),
    messages: bigintOf(row["messages"]),
    events: bigintOf(row["events"]),
    bytes: bigintOf(row["bytes"]),
  }));
}

/** A part of the rows that `eraseBatch` would delete, and the place to continue. */
interface CountedRows extends ErasedRows {
  /** The number of the last counted row; undefined: no row. */
  readonly lastSeq: bigint | undefined;
}

/** Counts the next rows of a beginning, as many as one statement may read; for dry runs. */
export async function countRows(
  database: Database,
  { sessionId, stream, upToSeq, recordedUpToMicros, sparesTurns }: Beginning,
  { after, rowsMax }: { readonly after: bigint; readonly rowsMax: number },
): Promise<CountedRows> {
  const end = upToSeq === undefined ? sql`` : sql`and seq <= ${upToSeq.toString()}::bigint`;
  const isOld =
    recordedUpToMicros === undefined
      ? sql`true`
      : sql`bool_and(recorded_at <= ${isoOf(recordedUpToMicros)}::timestamptz) over (order by seq)`;
  // As ledger_erase_rows spares them.
  const spared = sparesTurns
    ? sql`and seq <= coalesce((select case when has_claimed then coalesce(open_turn_seq, turn_seq) end
        from sessions where id = ${sessionId}), 9223372036854775807)`
    : sql``;
  const [fields] = await database.run(sql`
    select count(*) as rows, coalesce(sum(size), 0) as bytes, max(seq) as last_seq
    from (
      select seq, size, ${isOld} as is_old from (
        select seq, recorded_at, ${storedBytes(stream)} as size from ${TABLE[stream]}
        where session_id = ${sessionId} and seq > ${after.toString()}::bigint ${end}
        order by seq limit ${rowsMax}
      ) beginning
    ) counted where is_old ${spared}`);
  return { ...erasedOf(fields), lastSeq: optionalBigintOf(fields?.["last_seq"]) };
}

function erasedOf(fields: Fields | undefined): ErasedRows {
  return { rows: bigintOf(fields?.["rows"]), bytes: bigintOf(fields?.["bytes"]) };
}

const PAUSE_MAX_MS = 1_000;
/** For another try on a locked session; `pauseAfter` takes half of it. */
export const BUSY_PAUSE_MS = 50;

/**
 * Pauses between two batches for half as long as the batch took (at most 1 s), so that pushes get the
 * database for that time. Ends at once, and without an error, when the signal aborts.
 */
export async function pauseAfter(busyMs: number, signal: AbortSignal): Promise<void> {
  const pauseMs = Math.min(busyMs / 2, PAUSE_MAX_MS);
  await delay(pauseMs, undefined, { signal }).catch(() => undefined);
}
