/**
 * Writes the batches of an import, one per transaction: the rows, their new places, the counts of
 * the sessions, and the progress of the import. So a killed process leaves whole batches, and the
 * next one begins after them.
 *
 *   hold the progress ──► make unknown sessions, hold all of them in the order of their ids
 *     ──► read them ──► refuse those with other rows ──► number, insert, map, count ──► progress
 *
 * Rows are numbered and put into runs as a push is (`arrange`).
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database, Fields, Transaction } from "../../src/store/database.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { importedRows, imports } from "../../src/store/schema.ts";
import { isoOf, microsColumn } from "../../src/store/columns.ts";
import { SESSION_TEXTS, SESSION_TIMES, type SourceSession } from "./source.ts";
import { type ImportRow, writeRows } from "./write.ts";

export interface ImportBatch {
  readonly source: string;
  readonly stream: StreamName;
  /** The progress of the import when the batch was read. */
  readonly after: bigint;
  /** The progress with this batch. */
  readonly upTo: bigint;
  /** In the order of their old numbers. */
  readonly rows: readonly ImportRow[];
  /** Sessions that are deleted in the source: they still take rows. */
  readonly deleted: ReadonlySet<string>;
  /** The beginning of the import. */
  readonly recordedAtMicros: bigint;
}

/** The reason why a session takes no rows of an import. */
export type ImportRefusal = "has_rows_of_its_own" | "deleted_here" | "erased_here";

export interface ImportedBatch {
  readonly refusals: ReadonlyMap<string, ImportRefusal>;
  /** Rows that exist already: the same source under another name. */
  readonly known: ReadonlySet<ImportRow>;
}

/** `moved`: another import of the source made progress meanwhile. */
export type ImportOutcome = "moved" | ImportedBatch;

/** The time of the database. */
export async function timeNow(database: Database): Promise<bigint> {
  const [row] = await database.run(sql`select ${microsColumn(sql`clock_timestamp()`)} as now`);
  return BigInt(String(row?.["now"]));
}

export async function importProgress(
  database: Database,
  { source, stream }: Pick<ImportBatch, "source" | "stream">,
): Promise<bigint> {
  const [row] = await database.run(sql`
    select last_old_seq from ${imports} where source = ${source} and stream = ${stream}`);
  return BigInt(String(row?.["last_old_seq"] ?? 0));
}

/** Creates the missing sessions; returns their number. */
export async function importSessions(
  database: Database,
  sessions: readonly SourceSession[],
): Promise<number> {
  const texts = SESSION_TEXTS.map((name) => sql.identifier(name));
  const times = SESSION_TIMES.map((name) => sql.identifier(name));
  const types = [
    ...texts.map((name) => sql`${name} text`),
    ...times.map((name) => sql`${name} timestamptz`),
  ];
  const list = sessions.map((session) => ({
    ...session,
    ...Object.fromEntries(SESSION_TIMES.map((name) => [name, isoOrUndefined(session[name])])),
  }));
  const made = await database.run(sql`
    insert into sessions (id, ${sql.join([...texts, ...times], sql`, `)})
    select s.id, coalesce(s.name, ''), ${sql.join(
      [...SESSION_TEXTS.slice(1), "start_time", "completion_time"].map(
        (name) => sql`s.${sql.identifier(name)}`,
      ),
      sql`, `,
    )}, coalesce(s.created_at, now()), coalesce(s.updated_at, s.created_at, now()), s.deleted_at
    from json_to_recordset(${JSON.stringify(list)}::text::json) as s(id text, ${sql.join(types, sql`, `)})
    order by s.id on conflict do nothing returning 1`);
  return made.length;
}

/** The number of missing sessions; for a dry run. */
export async function countMissing(
  database: Database,
  sessionIds: readonly string[],
): Promise<number> {
  const present = await database.run(sql`
    select from sessions where id = any (${idsOf(sessionIds)})`);
  return sessionIds.length - present.length;
}

/** The result of a batch, without a lock and without writing; for a dry run. */
export async function previewBatch(
  database: Database,
  { stream, rows, deleted }: Pick<ImportBatch, "stream" | "rows" | "deleted">,
): Promise<ImportedBatch> {
  const ids = [...new Set(rows.map(({ sessionId }) => sessionId))];
  const states = await database.run(statesStatement(ids));
  const known = await knownRows((statement) => database.run(statement), { stream, rows });
  return { refusals: refusalsOf(states, deleted), known };
}

export interface PassedSession {
  readonly sessionId: string;
  /** Its last number up to the progress of the import. */
  readonly lastOldSeq: bigint;
}

/** The sessions whose rows the import has skipped, and the reasons why they still take none. */
export async function stillRefused(
  database: Database,
  {
    stream,
    passed,
    deleted,
  }: {
    readonly stream: StreamName;
    readonly passed: readonly PassedSession[];
    readonly deleted: ReadonlySet<string>;
  },
): Promise<ReadonlyMap<string, ImportRefusal>> {
  const list = JSON.stringify(
    passed.map(({ sessionId, lastOldSeq }) => ({ s: sessionId, o: lastOldSeq.toString() })),
  );
  const left = await database.run(sql`
    select r.s from json_to_recordset(${list}::text::json) as r(s text, o bigint)
    where not exists (select from ${importedRows}
      where session_id = r.s and stream = ${stream} and old_seq >= r.o)`);
  if (left.length === 0) return new Map();
  const states = await database.run(statesStatement(left.map((row) => String(row["s"]))));
  return refusalsOf(states, deleted);
}

export async function importBatch(database: Database, batch: ImportBatch): Promise<ImportOutcome> {
  return database.transaction(async (transaction) => {
    if (!(await holdProgress(transaction, batch))) return "moved";
    const states = await holdSessions(transaction, batch);
    const refusals = refusalsOf(states, batch.deleted);
    const known = await knownRows((statement) => transaction.execute(statement), batch);
    const taken = batch.rows.filter((row) => !refusals.has(row.sessionId) && !known.has(row));
    const { recordedAtMicros } = batch;
    await writeRows(transaction, batch.stream, { rows: taken, states, recordedAtMicros });
    await transaction.execute(sql`
      update ${imports} set last_old_seq = ${batch.upTo.toString()}::bigint, updated_at = clock_timestamp()
      where source = ${batch.source} and stream = ${batch.stream}`);
    return { refusals, known };
  });
}

async function knownRows(
  execute: (statement: SQL) => Promise<readonly Fields[]>,
  { stream, rows }: Pick<ImportBatch, "stream" | "rows">,
): Promise<ReadonlySet<ImportRow>> {
  const list = JSON.stringify(
    rows.map(({ sessionId, oldSeq }, at) => ({ s: sessionId, o: oldSeq.toString(), at })),
  );
  const known = await execute(sql`
    select r.at from json_to_recordset(${list}::text::json) as r(s text, o bigint, at int)
    where exists (select from ${importedRows}
      where session_id = r.s and stream = ${stream} and old_seq = r.o)`);
  const places = new Set(known.map((row) => Number(row["at"])));
  return new Set(rows.filter((_, at) => places.has(at)));
}

/** False: the progress is not at the beginning of the batch. */
async function holdProgress(
  transaction: Transaction,
  { source, stream, after }: ImportBatch,
): Promise<boolean> {
  await transaction.execute(sql`
    insert into ${imports} (source, stream, last_old_seq, updated_at)
    values (${source}, ${stream}, 0, clock_timestamp()) on conflict do nothing`);
  const [row] = await transaction.execute(sql`
    select last_old_seq from ${imports} where source = ${source} and stream = ${stream} for update`);
  return BigInt(String(row?.["last_old_seq"])) === after;
}

async function holdSessions(
  transaction: Transaction,
  { rows }: ImportBatch,
): Promise<readonly Fields[]> {
  // Upstream's messages have no foreign key: a session may exist only in its rows.
  const first = new Map<string, string>();
  for (const { sessionId, rows: became } of rows) {
    const [row] = became;
    if (row !== undefined && !first.has(sessionId)) {
      first.set(sessionId, isoOf(row.createdAtMicros));
    }
  }
  const named = JSON.stringify([...first].map(([s, ca]) => ({ s, ca })));
  await transaction.execute(sql`
    insert into sessions (id, created_at, updated_at)
    select s, ca, ca from json_to_recordset(${named}::text::json) as r(s text, ca timestamptz)
    where not exists (select from sessions where id = r.s) order by s on conflict do nothing`);
  const ids = [...first.keys()];
  await transaction.execute(sql`
    select from sessions where id = any (${idsOf(ids)}) order by id for no key update`);
  return transaction.execute(statesStatement(ids));
}

/** A separate statement after the lock, so that it sees everything committed before. */
function statesStatement(sessionIds: readonly string[]): SQL {
  return sql`
    select s.id, s.message_seq, s.event_seq, s.open_run_id,
      s.deleted_at is not null as deleted, s.erased_at is not null as erased,
      s.message_seq <> ${lastImported("messages")} or s.event_seq <> ${lastImported("events")} as has_others
    from sessions s where s.id = any (${idsOf(sessionIds)})`;
}

function lastImported(stream: StreamName): SQL {
  return sql`coalesce((select new_seq from ${importedRows}
    where session_id = s.id and stream = ${stream} order by old_seq desc limit 1), 0)`;
}

function idsOf(sessionIds: readonly string[]): SQL {
  return sql`array(select json_array_elements_text(${JSON.stringify(sessionIds)}::text::json))`;
}

function refusalsOf(
  states: readonly Fields[],
  deleted: ReadonlySet<string>,
): ReadonlyMap<string, ImportRefusal> {
  const refusals = new Map<string, ImportRefusal>();
  for (const state of states) {
    const id = String(state["id"]);
    if (state["erased"] === true) refusals.set(id, "erased_here");
    else if (state["has_others"] === true) refusals.set(id, "has_rows_of_its_own");
    else if (state["deleted"] === true && !deleted.has(id)) refusals.set(id, "deleted_here");
  }
  return refusals;
}

function isoOrUndefined(micros: string | undefined): string | undefined {
  return micros === undefined ? undefined : isoOf(BigInt(micros));
}
