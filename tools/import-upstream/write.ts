/** Writes the rows of an import batch, their new places, and the new counts of their sessions. */
import { sql } from "drizzle-orm";
import { arrange } from "../../src/store/arrange.ts";
import {
  lastSeqOf,
  placeRow,
  type Push,
  storedBytesOf,
  type StoredRow,
  type StreamName,
} from "../../src/store/rows.ts";
import { importedRows } from "../../src/store/schema.ts";
import { isoOf } from "../../src/store/columns.ts";
import { bigintOf, type Fields, type Transaction } from "../../src/store/database.ts";

/** The rows that a source row has become: several for a group. */
export interface ImportRow {
  readonly sessionId: string;
  readonly oldSeq: bigint;
  readonly rows: readonly StoredRow[];
}

interface Written {
  readonly rows: readonly ImportRow[];
  readonly states: readonly Fields[];
  /** The same for all rows of an import: then the two streams are in the order of `created_at`. */
  readonly recordedAtMicros: bigint;
}

/** Runs under the lock of all their sessions; `states` are their current states. */
export async function writeRows(
  transaction: Transaction,
  stream: StreamName,
  { rows, states, recordedAtMicros }: Written,
): Promise<void> {
  if (rows.length === 0) return;
  const arrangement = arrange(rows.map((row) => pushOf(stream, row)));
  const stateOf = new Map(states.map((state) => [state["id"], state]));
  const head = stream === "messages" ? "message_seq" : "event_seq";
  for (const { use, row, offset, runId } of arrangement.rows) {
    const { sessionId } = use;
    const state = stateOf.get(sessionId);
    const seq = bigintOf(state?.[head]) + offset + 1n;
    placeRow(row, { sessionId, seq, runId: runId ?? String(state?.["open_run_id"] ?? "") });
  }
  const placed = rows.flatMap((one) => one.rows);
  await insertRows(transaction, { stream, placed, recordedAtMicros });
  await insertMap(transaction, stream, rows);
  const used = arrangement.uses.map((use) => ({
    s: use.sessionId,
    m: use.messages.toString(),
    e: use.events.toString(),
    n: use.rows,
    b: use.bytes,
    q: use.openRunRows,
    w: use.runId !== undefined,
    rid: use.runId === "" ? undefined : use.runId,
    la: isoOf(latestOf(placed, use.sessionId)),
  }));
  await transaction.execute(sql`
    update sessions set message_seq = message_seq + r.m, event_seq = event_seq + r.e,
      row_count = row_count + r.n,
      payload_bytes = payload_bytes + r.b + r.q * coalesce(octet_length(open_run_id), 0),
      open_run_id = case when r.w then r.rid else open_run_id end,
      turn_seq = message_seq + r.m,
      last_activity_at = greatest(last_activity_at, r.la), active_at = greatest(last_activity_at, r.la)
    from json_to_recordset(${JSON.stringify(used)}::text::json) as
      r(s text, m bigint, e bigint, n bigint, b bigint, q bigint, w boolean, rid text, la timestamptz)
    where sessions.id = r.s`);
  for (const { sessionId } of arrangement.uses) {
    const { message_seq: messages, event_seq: events } = stateOf.get(sessionId) ?? {};
    await transaction.execute(sql`
      select ledger_extend_chains(${sessionId}::text, ${String(messages)}::text::bigint,
        ${String(events)}::text::bigint)`);
  }
}

function pushOf(stream: StreamName, { sessionId, rows }: ImportRow): Push {
  const nothing = { key: undefined, digest: undefined, epoch: undefined, actor: undefined };
  return { sessionId, stream, rows, bytes: storedBytesOf(rows), range: undefined, ...nothing };
}

function latestOf(placed: readonly StoredRow[], sessionId: string): bigint {
  return placed
    .filter((row) => row.sessionId === sessionId)
    .reduce((latest, { createdAtMicros: at }) => (at > latest ? at : latest), 0n);
}

async function insertRows(
  transaction: Transaction,
  {
    stream,
    placed,
    recordedAtMicros,
  }: Pick<Written, "recordedAtMicros"> & {
    readonly stream: StreamName;
    readonly placed: readonly StoredRow[];
  },
): Promise<void> {
  const recorded = sql`${isoOf(recordedAtMicros)}::timestamptz`;
  const rows = placed.map((row) => ({
    s: row.sessionId,
    n: row.seq.toString(),
    id: row.id,
    ty: row.eventType,
    pl: row.payload,
    ca: isoOf(row.createdAtMicros),
    ...(row.stream === "events" && {
      co: isoOrUndefined(row.completedAtMicros),
      ec: row.eventCount,
      rid: row.runId === "" ? undefined : row.runId,
      cf: row.conformant,
    }),
  }));
  const from = sql`from json_to_recordset(${JSON.stringify(rows)}::text::json) as
    r(s text, n bigint, id uuid, ty text, pl text, ca timestamptz, co timestamptz, ec integer, rid text, cf boolean)`;
  await transaction.execute(
    stream === "messages"
      ? sql`insert into session_messages (session_id, seq, id, event_type, payload, created_at, recorded_at)
          select s, n, id, ty, pl, ca, ${recorded} ${from}`
      : sql`insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at,
            completed_at, event_count, run_id, conformant)
          select s, n, id, ty, pl, ca, ${recorded}, co, ec, rid, cf ${from}`,
  );
}

async function insertMap(
  transaction: Transaction,
  stream: StreamName,
  imported: readonly ImportRow[],
): Promise<void> {
  const map = imported.map(({ sessionId, oldSeq, rows }) => {
    const last = rows.at(-1);
    return { s: sessionId, o: oldSeq.toString(), n: String(last && lastSeqOf(last)) };
  });
  await transaction.execute(sql`
    insert into ${importedRows} (session_id, stream, old_seq, new_seq)
    select s, ${stream}, o, n
    from json_to_recordset(${JSON.stringify(map)}::text::json) as r(s text, o bigint, n bigint)`);
}

function isoOrUndefined(micros: bigint | undefined): string | undefined {
  return micros === undefined ? undefined : isoOf(micros);
}
