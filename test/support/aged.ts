/** Sessions with old rows: the rows are pushed normally, and their times are then changed in the table. */
import { sql } from "drizzle-orm";
import { append } from "../../src/store/append.ts";
import { storedBytes } from "../../src/store/columns.ts";
import type { Database } from "../../src/store/database.ts";
import type { NewRow, StreamName } from "../../src/store/rows.ts";
import { newPush, newRow } from "./ledger.ts";

/** One row and its age. */
export interface Aged {
  readonly row: NewRow;
  readonly days: number;
}

export function started(runId: string, days: number): Aged {
  const payload = JSON.stringify({ type: "RUN_STARTED", threadId: "t", runId });
  const mark = { kind: "open", runId } as const;
  return { row: newRow({ eventType: "RUN_STARTED", payload, mark }), days };
}

export function finished(runId: string, days: number, eventType = "RUN_FINISHED"): Aged {
  const payload = JSON.stringify({ type: eventType, threadId: "t", runId });
  return { row: newRow({ eventType, payload, mark: { kind: "close" } }), days };
}

export function custom(value: number | string, days: number): Aged {
  const payload = JSON.stringify({ type: "CUSTOM", name: "n", value });
  return { row: newRow({ eventType: "CUSTOM", payload }), days };
}

/** A merged row. */
export function merged(events: number, days: number): Aged {
  const payload = JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "abc" });
  const eventType = "TEXT_MESSAGE_CONTENT";
  return { row: newRow({ eventType, payload, eventCount: events }), days };
}

export function message(text: string, days: number): Aged {
  return { row: newRow({ eventType: "user", payload: text }), days };
}

export async function storeAged(
  database: Database,
  { sessionId, stream }: { readonly sessionId: string; readonly stream: StreamName },
  rows: readonly Aged[],
): Promise<void> {
  const seqs: { readonly n: string; readonly d: number }[] = [];
  for (let at = 0; at < rows.length; at += BATCH) {
    const part = rows.slice(at, at + BATCH);
    const pushes = part.map(({ row }) => newPush(sessionId, { stream, rows: [row] }));
    const outcomes = await append(database, pushes, { createMissing: true, wait: true });
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.kind !== "stored") throw new Error(outcome.kind);
      seqs.push({ n: String(outcome.places[0]?.seq), d: part[index]?.days ?? 0 });
    }
  }
  const table = stream === "messages" ? sql`session_messages` : sql`session_events`;
  await database.run(sql`
    update ${table} set recorded_at = recorded_at - interval '1 day' * aged.d
    from json_to_recordset(${JSON.stringify(seqs)}::text::json) as aged(n bigint, d float)
    where session_id = ${sessionId} and seq = aged.n`);
}

const BATCH = 500;

export interface Holding {
  readonly messages: readonly bigint[];
  readonly events: readonly bigint[];
  /** The counters of the session minus its real rows and bytes: zero. */
  readonly rowsOff: number;
  readonly bytesOff: number;
}

export async function holdingOf(database: Database, sessionId: string): Promise<Holding> {
  const seqs = async (table: "session_messages" | "session_events"): Promise<readonly bigint[]> => {
    const rows = await database.run(sql`
      select seq from ${sql.identifier(table)} where session_id = ${sessionId} order by seq`);
    return rows.map((row) => BigInt(String(row["seq"])));
  };
  const [off] = await database.run(sql`
    select (row_count - (select count(*) from (${rowsOf(sessionId)}) r))::int as rows,
      (payload_bytes - (select coalesce(sum(bytes), 0) from (${rowsOf(sessionId)}) r))::int as bytes
    from sessions where id = ${sessionId}`);
  return {
    messages: await seqs("session_messages"),
    events: await seqs("session_events"),
    rowsOff: Number(off?.["rows"]),
    bytesOff: Number(off?.["bytes"]),
  };
}

const rowsOf = (sessionId: string) => sql`
  select ${storedBytes("messages")} as bytes from session_messages where session_id = ${sessionId}
  union all select ${storedBytes("events")} from session_events where session_id = ${sessionId}`;
