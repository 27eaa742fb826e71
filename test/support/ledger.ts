import { v7 as uuidv7 } from "uuid";
import type { RunMark } from "@session-ledger/base/ids";
import type { LedgerWriter } from "../../src/ingest/opener.ts";
import { append, type AppendOptions } from "../../src/store/append.ts";
import {
  createDatabase as openDatabase,
  type Database,
  type DatabaseOptions,
} from "../../src/store/database.ts";
import { migrateUp } from "../../src/store/migrate.ts";
import {
  type EventRow,
  Independent,
  type MessageRow,
  type Outcome,
  type Push,
  storedBytesOf,
  type StoredRow,
  type StreamName,
  type StreamRange,
} from "../../src/store/rows.ts";
import { openStream } from "../../src/store/streams.ts";
import { createDatabase } from "./database.ts";
import { sql } from "drizzle-orm";
import { storedBytes } from "../../src/store/columns.ts";
import postgres from "postgres";
import { afterAll } from "vitest";

/** True in the project `sharded`: calls of one session, as on a sharded engine. */
export const IS_SHARDED = process.env["ENGINE"] === "citus";

export interface TestLedger extends AsyncDisposable {
  readonly url: string;
  readonly database: Database;
}

/** A migrated database of its own, and a pool to it with the service's limits. */
export async function createLedger(
  options: Partial<
    Pick<DatabaseOptions, "connectionsMax" | "statementTimeoutMs" | "lockTimeoutMs">
  > = {},
): Promise<TestLedger> {
  const created = await createDatabase();
  await migrateUp(created.url);
  const database = openDatabase({
    url: () => created.url,
    connectionsMax: options.connectionsMax ?? 10,
    statementTimeoutMs: options.statementTimeoutMs ?? 5_000,
    lockTimeoutMs: options.lockTimeoutMs ?? 500,
    isSharded: IS_SHARDED,
  });
  await database.start();
  return {
    url: created.url,
    database,
    async [Symbol.asyncDispose]() {
      await database.stop();
      await created.drop();
    },
  };
}

/** The ledger of a test file: made when the file is loaded, and dropped after its tests. */
export async function useLedger(
  options: Parameters<typeof createLedger>[0] = {},
): Promise<TestLedger> {
  const ledger = await createLedger(options);
  afterAll(() => ledger[Symbol.asyncDispose]());
  return ledger;
}

/** Connections of a test file, which end after its tests. */
export function useSql(
  url: string,
  max: number,
  connection: Readonly<Record<string, string>> = {},
): postgres.Sql {
  const client = postgres(url, { max, onnotice: () => undefined, fetch_types: false, connection });
  afterAll(() => client.end({ timeout: 1 }));
  return client;
}

/** The store as ingest needs it; sessions are created. */
export function ledgerWriter(database: Database): LedgerWriter {
  return {
    sessionCallsMax: database.sessionCallsMax,
    append: (pushes, { wait }) => append(database, pushes, { createMissing: true, wait }),
    openStream: (request, { wait }) => openStream(database, request, { createMissing: true, wait }),
  };
}

/** A row of either stream, before its commit. */
export type NewRow = EventRow & Pick<MessageRow, "sender" | "sentAtMicros">;

export function newRow({
  mark,
  ...row
}: Partial<NewRow> & { readonly mark?: RunMark | undefined } = {}): NewRow {
  const types = { open: "RUN_STARTED", close: "RUN_FINISHED", ask: "CUSTOM", none: "RAW" };
  return {
    stream: "events",
    sessionId: "",
    seq: 0n,
    id: uuidv7(),
    eventType: types[mark?.kind ?? "none"],
    payload: '{"type":"RAW","event":1}',
    createdAtMicros: 1_700_000_000_000_001n,
    completedAtMicros: undefined,
    eventCount: 1,
    runId: mark?.kind === "open" ? mark.runId : "",
    fragments: undefined,
    conformant: true,
    sender: undefined,
    sentAtMicros: undefined,
    ...row,
  };
}

type RowParts = Partial<Omit<NewRow, "stream">>;

/** Each push has separate rows: a commit gives them their places. */
function rowOf(stream: StreamName, row: RowParts): StoredRow {
  const { sender, sentAtMicros, ...event } = newRow({ ...row, stream: "events" });
  if (stream === "events") return event;
  const { sessionId, seq, id, eventType, payload, createdAtMicros } = event;
  const base = { sessionId, seq, id, eventType, payload, createdAtMicros };
  return { stream, ...base, sender, sentAtMicros };
}

type PushParts = Omit<Push, "rows"> & { readonly rows: readonly RowParts[] };

export function newPush(sessionId: string, push: Partial<PushParts> = {}): Push {
  const { stream = "events" } = push;
  const rows = (push.rows ?? [{}]).map((row) => rowOf(stream, row));
  return {
    sessionId,
    stream,
    key: undefined,
    digest: push.key === undefined ? undefined : Uint8Array.of(1),
    epoch: undefined,
    actor: undefined,
    range: undefined,
    bytes: storedBytesOf(rows),
    ...push,
    rows,
  };
}

/** An outcome as models have it: of a repeated push, the number of its row. */
export type ModelOutcome =
  | Exclude<Outcome, { readonly kind: "stored" | "deduplicated" }>
  | { readonly kind: "stored"; readonly places: readonly Pick<EventRow, "seq" | "runId">[] }
  | { readonly kind: "deduplicated"; readonly seq: bigint | undefined };

export function modelOutcomesOf(
  outcomes: readonly Outcome[],
  pushes: readonly Push[],
): readonly ModelOutcome[] {
  return outcomes.map((outcome, at) => {
    if (outcome.kind === "stored")
      return { kind: outcome.kind, places: (pushes[at]?.rows ?? []).map(placeOf) };
    return outcome.kind === "deduplicated"
      ? { kind: outcome.kind, seq: outcome.row?.seq }
      : outcome;
  });
}

function placeOf(row: StoredRow): Pick<EventRow, "seq" | "runId"> {
  return { seq: row.seq, runId: row.stream === "events" ? row.runId : "" };
}

/** Appends in a transaction of the caller, for its counts. */
export function appendIn(
  on: postgres.TransactionSql,
  pushes: readonly Push[],
  options: AppendOptions,
): Promise<readonly Outcome[]> {
  const attempt: Database["attempt"] = async (statement) => {
    if (!("text" in statement)) throw new Error("append sends another statement");
    return on.unsafe(statement.text, [...statement.values], { prepare: true });
  };
  return append({ attempt, onCommit: () => undefined }, pushes, options);
}

/** The final outcome of each push: as ingest does, those of the outcome `again` are sent again. */
export async function appendAll(
  database: Database,
  pushes: readonly Push[],
  options: AppendOptions,
): Promise<readonly Outcome[]> {
  if (pushes.length === 0) return [];
  const outcomes = new Map<Push, Outcome>();
  const settle = (some: readonly Push[], settled: readonly Outcome[]): void =>
    settled.forEach((outcome, index) => outcomes.set(some[index] ?? newPush(""), outcome));
  const calls = IS_SHARDED
    ? [...Map.groupBy(pushes, ({ sessionId }) => sessionId).values()]
    : [pushes];
  await Promise.all(calls.map(async (some) => settle(some, await append(database, some, options))));
  for (const isLater of [false, true]) {
    const again = pushes.filter((push) => {
      const outcome = outcomes.get(push);
      return outcome?.kind === "again" && (outcome.isLater ?? false) === isLater;
    });
    settle(again, await appendAll(database, again, options));
  }
  return pushes.map((push) => outcomes.get(push) ?? { kind: "busy" });
}

/** Batches as ingest makes them: a push that depends on an earlier one begins the next batch. */
export function batchesOf(pushes: readonly Push[], size: number): Push[][] {
  const made: Push[][] = [];
  let independent = new Map<string, Independent>();
  for (const next of pushes) {
    const session = independent.get(next.sessionId) ?? new Independent();
    const last = made.at(-1);
    if (last !== undefined && last.length < size && session.admit(next)) {
      independent.set(next.sessionId, session);
      last.push(next);
      continue;
    }
    independent = new Map([[next.sessionId, new Independent()]]);
    independent.get(next.sessionId)?.admit(next);
    made.push([next]);
  }
  return made;
}

interface Held {
  readonly rows: number;
  readonly bytes: number;
}

/** The size of a session: as its row counts it, and as the tables have it. */
export async function heldBy(
  { database }: Pick<TestLedger, "database">,
  sessionId: string,
): Promise<{ readonly counted: Held; readonly found: Held }> {
  const [row] = await database.run(sql`
    select s.row_count::int as counted_rows, s.payload_bytes::int as counted_bytes,
      count(r.bytes)::int as found_rows, coalesce(sum(r.bytes), 0)::int as found_bytes
    from sessions s left join (
      select session_id, ${storedBytes("messages")} as bytes from session_messages
      union all select session_id, ${storedBytes("events")} from session_events
    ) r on r.session_id = s.id
    where s.id = ${sessionId} group by s.id`);
  const number = (name: string): number => Number(row?.[name]);
  return {
    counted: { rows: number("counted_rows"), bytes: number("counted_bytes") },
    found: { rows: number("found_rows"), bytes: number("found_bytes") },
  };
}

// The effect of a statement on a table, as PostgreSQL counts it: the real plan, not an explained one.

export interface TableCounts {
  readonly seqScans: number;
  readonly rowsByIndex: number;
  readonly updates: number;
  /** Updates that stayed in their page and touched no index. */
  readonly hotUpdates: number;
}

export async function countsOf(
  client: postgres.Sql,
  table: string,
  statement: (on: postgres.TransactionSql) => Promise<unknown>,
): Promise<TableCounts> {
  return client.begin(async (transaction) => {
    // The view includes counts of earlier transactions that the connection has not reported yet.
    const before = await read(transaction, table);
    await statement(transaction);
    const after = await read(transaction, table);
    return {
      seqScans: after.seqScans - before.seqScans,
      rowsByIndex: after.rowsByIndex - before.rowsByIndex,
      updates: after.updates - before.updates,
      hotUpdates: after.hotUpdates - before.hotUpdates,
    };
  });
}

async function read(on: postgres.TransactionSql, table: string): Promise<TableCounts> {
  const [counts] = await on<TableCounts[]>`
    select seq_scan::int as "seqScans", idx_tup_fetch::int as "rowsByIndex",
      n_tup_upd::int as updates, n_tup_hot_upd::int as "hotUpdates"
    from pg_stat_xact_user_tables where relname = ${table}`;
  if (counts === undefined) throw new Error(`there is no table ${table}`);
  return counts;
}

// Ranges of push streams, for tests.

export interface Numbers {
  readonly from: bigint;
  readonly to: bigint;
  readonly refused?: number;
}

type Stream = Pick<StreamRange, "epoch" | "stream">;

export function newRange({ epoch, stream }: Stream, numbers: Numbers): StreamRange {
  const { from: firstClientSeq, to: lastClientSeq, refused = 0 } = numbers;
  return { epoch, stream, firstClientSeq, lastClientSeq, refused };
}

/** By default with one row of as many events as the range has accepted numbers. */
export function rangePush(
  sessionId: string,
  stream: Stream,
  { rows, ...numbers }: Numbers & { readonly rows?: readonly NewRow[] },
): Push {
  const range = newRange(stream, numbers);
  const eventCount = Number(numbers.to - numbers.from) + 1 - range.refused;
  const asOne = eventCount === 0 ? [] : [newRow({ eventCount })];
  return newPush(sessionId, { range, rows: rows ?? asOne });
}

// Sessions with old rows: the rows are pushed normally, and their times are then changed in the table.

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
      seqs.push({ n: String(pushes[index]?.rows[0]?.seq), d: part[index]?.days ?? 0 });
    }
  }
  const table = stream === "messages" ? sql`session_messages` : sql`session_events`;
  await database.run(sql`
    update ${table} set recorded_at = recorded_at - interval '1 day' * aged.d
    from json_to_recordset(${JSON.stringify(seqs)}::text::json) as aged(n bigint, d float)
    where session_id = ${sessionId} and seq = aged.n`);
  await database.run(sql`update sessions set retained_until = default where id = ${sessionId}`);
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

// A locked session: an idle transaction holds the lock of its row.

/** Locked until `release`, and at most for its scope, so that a failed test unlocks it. */
export interface HeldSession extends AsyncDisposable {
  release(): Promise<void>;
}

/** Resolves when the row is locked. Uses its own connection. */
export async function holdSession(client: postgres.Sql, sessionId: string): Promise<HeldSession> {
  const held = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  const holding = client.begin(async (silent) => {
    const rows = await silent`select 1 from sessions where id = ${sessionId} for update`;
    if (rows.length !== 1) throw new Error(`there is no session ${sessionId}`);
    held.resolve();
    await over.promise;
  });
  await Promise.race([held.promise, holding]);
  const ended = holding.catch(() => undefined); // The server may go first.
  const release = async (): Promise<void> => {
    over.resolve();
    await ended;
  };
  return { release, [Symbol.asyncDispose]: release };
}

/** The number of statements that wait for a lock in this database. */
export async function waitingForLocks(client: postgres.Sql): Promise<number> {
  const [row] = await client<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity
    where datname = current_database() and application_name = 'session-ledger'
      and wait_event_type = 'Lock'`;
  return row?.count ?? 0;
}
