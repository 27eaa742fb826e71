/**
 * Reads a database of the upstream service: `sessions`, `session_messages`, `session_events`. The
 * last two have one `seq` for the whole table. Columns were added over time, and some may be
 * missing.
 *
 * Pages go up by `seq` and end between two numbers, never inside one: a draft of the schema counted
 * `seq` per session, so rows of many sessions may share a number. Pages are bounded in rows and
 * bytes. All statements only read, and the connection is read-only.
 */
import { type SQL, sql } from "drizzle-orm";
import { createDatabase, type Database, type Fields } from "../../src/store/database.ts";
import { naming } from "../../src/store/failure.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { microsColumn } from "../../src/store/columns.ts";

/** A row in its upstream form. */
export interface SourceRow {
  readonly oldSeq: bigint;
  readonly id: string;
  readonly sessionId: string;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
  readonly completedAtMicros: bigint | undefined;
  /** 1 where upstream has no value. */
  readonly eventCount: number;
}

/** The texts and times of a session, by the names of our columns; every present value is a text. */
export type SourceSession = Readonly<Record<SessionColumn, string | undefined>> & {
  readonly id: string;
};

export interface SourceColumns {
  readonly sessions: ReadonlySet<string>;
  /** Empty: the table does not exist. */
  readonly messages: ReadonlySet<string>;
  readonly events: ReadonlySet<string>;
}

export const SESSION_TEXTS = [
  "name",
  "project_id",
  "phase",
  "prompt",
  "created_by_user_id",
  "llm_model",
  "agent_id",
  "parent_session_id",
  "labels",
  "annotations",
] as const;
export const SESSION_TIMES = [
  "start_time",
  "completion_time",
  "created_at",
  "updated_at",
  "deleted_at",
] as const;
type SessionColumn = (typeof SESSION_TEXTS)[number] | (typeof SESSION_TIMES)[number];

const TABLES = { messages: "session_messages", events: "session_events" } as const;

export interface SourceOptions {
  readonly url: string;
  readonly statementTimeoutMs: number;
}

/** The caller starts and stops it like the ledger's own database. */
export function openSource({ url, statementTimeoutMs }: SourceOptions): Database {
  const readOnly = new URL(url);
  readOnly.searchParams.set("default_transaction_read_only", "on");
  const database = createDatabase({
    url: () => readOnly.href,
    connectionsMax: 1,
    statementTimeoutMs,
    lockTimeoutMs: statementTimeoutMs,
  });
  // Errors of the source database are reported in the same form.
  const named = { setting: "--from", url };
  return { ...database, run: (statement) => naming(named, () => database.run(statement)) };
}

/** The key of a source: its place, without the user. */
export function sourceName(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${hostname}:${port === "" ? "5432" : port}${pathname}`;
}

export async function readColumns(source: Database): Promise<SourceColumns> {
  const rows = await source.run(sql`
    select table_name, column_name from information_schema.columns
    where table_schema = any (current_schemas(false))
      and table_name in ('sessions', 'session_messages', 'session_events')`);
  const of = (table: string): ReadonlySet<string> =>
    new Set(
      rows.filter((row) => row["table_name"] === table).map((row) => String(row["column_name"])),
    );
  return {
    sessions: of("sessions"),
    messages: of("session_messages"),
    events: of("session_events"),
  };
}

export interface SourcePage {
  readonly stream: StreamName;
  readonly after: bigint;
  readonly rowsMax: number;
  /** The limit of payload bytes; the rows of one number always come together. */
  readonly bytesMax: number;
}

/** In the order of their numbers; empty: no more. */
export async function readSourcePage(
  source: Database,
  columns: SourceColumns,
  { stream, after, rowsMax, bytesMax }: SourcePage,
): Promise<readonly SourceRow[]> {
  const has = columns[stream];
  if (has.size === 0) return [];
  const rows = await source.run(sql`
    select seq, id, session_id, event_type, payload, ${timeColumn(has, "created_at")} as created_at,
      ${timeColumn(has, "completed_at")} as completed_at,
      ${has.has("event_count") ? sql`event_count` : sql`null::int`} as event_count
    from (
      select *, sum(octet_length(payload)) over (order by seq) as bytes_so_far,
        dense_rank() over (order by seq) as place
      from (
        select * from ${sql.identifier(TABLES[stream])} where seq > ${after.toString()}::bigint
        order by seq fetch first ${rowsMax} rows with ties
      ) wanted
    ) counted
    where bytes_so_far <= ${bytesMax} or place = 1
    order by seq, id`);
  return rows.map(rowOf);
}

/** The next sessions after an id with rows up to a number, with the last of those rows. */
export async function readSessionsUpTo(
  source: Database,
  columns: SourceColumns,
  {
    stream,
    upTo,
    after,
    sessionsMax,
  }: {
    readonly stream: StreamName;
    readonly upTo: bigint;
    readonly after: string;
    readonly sessionsMax: number;
  },
): Promise<readonly { readonly sessionId: string; readonly lastOldSeq: bigint }[]> {
  if (columns[stream].size === 0) return [];
  const rows = await source.run(sql`
    select session_id, max(seq)::text as last from ${sql.identifier(TABLES[stream])}
    where seq <= ${upTo.toString()}::bigint and session_id > ${after}
    group by session_id order by session_id limit ${sessionsMax}`);
  return rows.map((row) => ({
    sessionId: String(row["session_id"]),
    lastOldSeq: BigInt(String(row["last"])),
  }));
}

function rowOf(row: Fields): SourceRow {
  const completed = row["completed_at"];
  return {
    oldSeq: BigInt(String(row["seq"])),
    id: String(row["id"]),
    sessionId: String(row["session_id"]),
    eventType: String(row["event_type"]),
    payload: String(row["payload"]),
    createdAtMicros: BigInt(String(row["created_at"])),
    completedAtMicros: typeof completed === "string" ? BigInt(completed) : undefined,
    eventCount: Number(row["event_count"] ?? 1),
  };
}

/** The next sessions after an id. */
export async function readSourceSessions(
  source: Database,
  columns: SourceColumns,
  { after, sessionsMax }: { readonly after: string; readonly sessionsMax: number },
): Promise<readonly SourceSession[]> {
  if (columns.sessions.size === 0) return [];
  const texts = SESSION_TEXTS.map((name) =>
    columns.sessions.has(name) ? sql.identifier(name) : sql`null as ${sql.identifier(name)}`,
  );
  const times = SESSION_TIMES.map(
    (name) => sql`${timeColumn(columns.sessions, name)} as ${sql.identifier(name)}`,
  );
  const rows = await source.run(sql`
    select id, ${sql.join([...texts, ...times], sql`, `)} from sessions
    where id > ${after} order by id limit ${sessionsMax}`);
  return rows.map((row) => {
    const at = (name: SessionColumn): string | undefined => textOf(row, name);
    return {
      id: String(row["id"]),
      name: at("name"),
      project_id: at("project_id"),
      phase: at("phase"),
      prompt: at("prompt"),
      created_by_user_id: at("created_by_user_id"),
      llm_model: at("llm_model"),
      agent_id: at("agent_id"),
      parent_session_id: at("parent_session_id"),
      labels: at("labels"),
      annotations: at("annotations"),
      start_time: at("start_time"),
      completion_time: at("completion_time"),
      created_at: at("created_at"),
      updated_at: at("updated_at"),
      deleted_at: at("deleted_at"),
    };
  });
}

function textOf(row: Fields, name: SessionColumn): string | undefined {
  const text = row[name];
  return typeof text === "string" ? text : undefined;
}

/** The sessions among these that upstream has deleted. */
export async function readDeleted(
  source: Database,
  columns: SourceColumns,
  sessionIds: readonly string[],
): Promise<ReadonlySet<string>> {
  if (!columns.sessions.has("deleted_at")) return new Set();
  const rows = await source.run(sql`
    select id from sessions where deleted_at is not null
      and id = any (array(select json_array_elements_text(${JSON.stringify(sessionIds)}::text::json)))`);
  return new Set(rows.map((row) => String(row["id"])));
}

/**
 * Microseconds, limited to the years of the contract; PostgreSQL also has `infinity`. Without the
 * null check, greatest() and least() would turn a null into a year.
 */
function timeColumn(has: ReadonlySet<string>, name: string): SQL {
  if (!has.has(name)) return sql`null::bigint`;
  const column = sql.identifier(name);
  return microsColumn(sql`case when ${column} is not null then
    least(greatest(${column}, '0001-01-01T00:00:00Z'), '9999-12-31T23:59:59.999999Z') end`);
}
