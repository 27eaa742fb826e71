/**
 * Erases one session for good. The session is first marked as deleted, and then takes no push. Its
 * rows are deleted, one batch per transaction. At the end its texts are emptied and the session is
 * marked as erased. A call after a crash continues with the remaining rows.
 *
 *   there, or deleted ── mark ──► deleted ── batches ──► without rows ── texts ──► erased
 *                                    ▲                        │
 *                                    └──── an import ◄────────┘
 *
 * An import also stores rows in sessions that are deleted at its source. So the last statement
 * reads the session's heads under its lock. When the heads differ from those before the batches,
 * there are new rows, and these are deleted too. An erased session takes no import.
 */
import { ServiceError } from "../base/errors.ts";
import { type Database, sql } from "../store/database.ts";
import type { StreamName } from "../store/rows.ts";
import { importedRows } from "../store/schema.ts";
import { eraseBatch, ERASED_ROWS_MAX, pauseAfter } from "./batch.ts";

/** Rows that this call deleted; an earlier, interrupted call may have deleted others. */
export interface ErasedSession {
  readonly messages: bigint;
  readonly events: bigint;
}

export interface EraseCall {
  /** Called when the mark is on disk: from then on no caller may get any row of the session. */
  readonly marked: () => void;
  readonly counted: (stream: StreamName, rows: bigint) => void;
  /** Aborted when no caller waits for the end any more. */
  readonly signal: AbortSignal;
}

const BUSY_PAUSE_MS = 25;

/** Undefined: the session does not exist, or was erased before. */
export async function eraseSession(
  database: Database,
  sessionId: string,
  call: EraseCall,
): Promise<ErasedSession | undefined> {
  const marked = await database.run(sql`
    update sessions set deleted_at = coalesce(deleted_at, clock_timestamp()), updated_at = clock_timestamp()
    where id = ${sessionId} and erased_at is null returning message_seq, event_seq`);
  if (marked.length === 0) return undefined;
  call.marked();
  let messages = 0n;
  let events = 0n;
  // Without heads, another call has erased the session.
  for (let [heads] = marked; heads !== undefined; ) {
    messages += await eraseStream(database, { sessionId, stream: "messages" }, call);
    events += await eraseStream(database, { sessionId, stream: "events" }, call);
    while ((await forgetImported(database, sessionId)) > 0) refuseLeft(call);
    const erased = await database.run(sql`
      update sessions set name = '', project_id = null, phase = null, prompt = null,
        created_by_user_id = null, llm_model = null, agent_id = null, parent_session_id = null,
        labels = null, annotations = null, open_run_id = null, row_count = 0, payload_bytes = 0,
        erased_at = clock_timestamp()
      where id = ${sessionId} and erased_at is null
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
  const beginning = { ...of, upToSeq: undefined, recordedUpToMicros: undefined };
  let rows = 0n;
  for (;;) {
    refuseLeft(call);
    const beganMs = performance.now();
    const erased = await eraseBatch(database, beginning);
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
  const message = "the caller left: the next call erases what is left of the session";
  throw new ServiceError("cancelled", "CANCELLED", message);
}
