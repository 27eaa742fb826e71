/**
 * Migrates the schema up, or one step down, or reports its state. Drizzle generates the migrations
 * and their journal; steps down are hand-written. A landed file never changes (decision 073). `--
 * include ledger.sql` creates functions and views of another file, and `-- replace ledger.sql`
 * replaces those of another version while instances call them. A call is one transaction that
 * begins with an advisory lock: of two instances that start at once, one migrates.
 *
 * This file replaces Drizzle's migrator, whose transactions end the process when they lose their
 * connection (store/database.ts), and keeps its table.
 *
 * A schema with an unknown migration is newer than the code; one with other contents of a known
 * migration is from before 0.1.0. Then nothing is changed and the service refuses to start.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { getTableName, sql } from "drizzle-orm";
import postgres from "postgres";
import { ServiceError, settingRefused } from "@session-ledger/base/errors";
import { urlsOfHosts } from "../base/postgres-hosts.ts";
import { storeError } from "./failure.ts";
import * as tables from "./schema.ts";
import { anyOf } from "./columns.ts";
import { distribute, type Engine, refuseWorkers } from "./distribute.ts";
import { findPrimary } from "./primary.ts";
import { inTransaction, type Transaction } from "./database.ts";

const FOLDER = join(import.meta.dirname, "migrations");
/** Any number, the same in every version: "sledger" read as a number. */
const LOCK = 0x736c_6564;
const CONNECT_TIMEOUT_S = 10;
/** The line that Drizzle writes between two statements. */
const BREAKPOINT = "--> statement-breakpoint";

interface Migration {
  readonly tag: string;
  readonly appliedAs: number;
  readonly hash: string;
  readonly statements: readonly string[];
}

export interface SchemaOptions {
  /** DATABASE_SCHEMA, which `url` must name too (`inSchema`). */
  readonly schema?: string | undefined;
  /** Of the migrations; another one in tests. */
  readonly folder?: string | undefined;
  /** With `citus` and its extension the tables are distributed among its nodes. */
  readonly engine?: Engine | undefined;
}

/** The schema of the views of analytics: one for each ledger of a database. */
function analyticsSchema(schema: string | undefined): string {
  return schema === undefined || schema === "public" ? "analytics" : `${schema}_analytics`;
}

export interface MigrationStatus {
  readonly applied: readonly string[];
  readonly pending: readonly string[];
  /** Migrations in the database that this version does not know. */
  readonly unknown: number;
}

interface UpOptions extends SchemaOptions {
  /** Of each table that grows with the rows, in a new database; undefined: as it is, or none. */
  readonly partitions?: number | undefined;
}

export async function migrateUp(
  url: string,
  { schema, folder = FOLDER, engine = "postgres", partitions }: UpOptions = {},
): Promise<MigrationStatus> {
  const table = tableOf(schema);
  const migrations = migrationsIn(folder);
  if (partitions !== undefined && engine === "citus")
    throw settingRefused("--partitions", "Citus divides the tables, expected ENGINE=postgres");
  return locked(url, async (transaction) => {
    await refuseWorkers(transaction, engine);
    const status = refuseNewer(await statusOf(transaction, table, migrations));
    const { pending, applied } = status;
    const isNew = applied.length === 0;
    if (partitions !== undefined && !isNew) await refuseOtherPartitions(transaction, partitions);
    if (pending.length === 0) {
      await distribute(transaction, engine);
      return status;
    }
    await prepare(transaction, { schema, isNew });
    // The same table as Drizzle's migrator makes.
    await executeAll(transaction, [
      `create table if not exists ${table} (
        id serial primary key, hash text not null, created_at bigint)`,
    ]);
    for (const { tag, appliedAs, hash, statements } of migrations) {
      if (!pending.includes(tag)) continue;
      const all = partitions === undefined ? statements : withPartitions(statements, partitions);
      await executeAll(transaction, named(all, schema));
      await transaction.execute(sql`
        insert into ${sql.raw(table)} (hash, created_at) values (${hash}, ${appliedAs})`);
    }
    await distribute(transaction, engine);
    return statusOf(transaction, table, migrations);
  });
}

/**
 * Reverts the newest migration, with its rows: reverting the first one drops the tables. Refused
 * while other session-ledger processes are connected to the database, unless `force` is set.
 */
export async function migrateDown(
  url: string,
  { force = false, schema, folder = FOLDER }: SchemaOptions & { readonly force?: boolean } = {},
): Promise<MigrationStatus> {
  const table = tableOf(schema);
  const migrations = migrationsIn(folder);
  return locked(url, async (transaction) => {
    if (!force) await refuseWhileInUse(transaction);
    const status = refuseNewer(await statusOf(transaction, table, migrations));
    const tag = status.applied.at(-1);
    const migration = migrations.find((entry) => entry.tag === tag);
    if (migration === undefined) return status;
    const down = textOf(folder, `${migration.tag}.down.sql`).split(BREAKPOINT);
    await executeAll(transaction, named(down, schema));
    await transaction.execute(
      sql`delete from ${sql.raw(table)} where created_at = ${migration.appliedAs}`,
    );
    return statusOf(transaction, table, migrations);
  });
}

export async function migrationStatus(
  url: string,
  { schema, folder = FOLDER }: SchemaOptions = {},
): Promise<MigrationStatus> {
  return locked(url, (transaction) => statusOf(transaction, tableOf(schema), migrationsIn(folder)));
}

/** For commands while other processes run: the schema must be the one of this version. */
export async function refuseOtherSchema(url: string, options: SchemaOptions = {}): Promise<void> {
  const status = refuseNewer(await migrationStatus(url, options));
  if (status.pending.length === 0) return;
  const message = `the database schema is older than this version: run migrate up first (${status.pending.length} migrations pending)`;
  throw new ServiceError("failed_precondition", "SCHEMA_OLDER", message);
}

async function locked<T>(url: string, work: (transaction: Transaction) => Promise<T>): Promise<T> {
  const hosts = urlsOfHosts(url);
  let found = url;
  const connect = (lost: () => void): postgres.Sql =>
    postgres(found, {
      max: 1,
      onnotice: () => undefined,
      onclose: lost,
      connect_timeout: CONNECT_TIMEOUT_S,
      // A connection that is lost during the query for types never rejects.
      fetch_types: false,
      max_lifetime: null,
      connection: { application_name: "session-ledger-migrate" },
    });
  try {
    if (hosts.length > 1) found = (await findPrimary(hosts)).url;
    return await inTransaction({ connect, answerLimit: undefined }, async (transaction) => {
      // Limits of the role (docs/scale.md) are for pushes: a migration may take minutes, and others wait for it.
      await transaction.execute(sql`
        select set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)`);
      await transaction.execute(sql`select pg_advisory_xact_lock(${LOCK})`);
      return work(transaction);
    });
  } catch (error) {
    throw storeError(error);
  }
}

/** Instances, imports and retention name their connections; this one has another name. */
async function refuseWhileInUse(transaction: Transaction): Promise<void> {
  const [others] = await transaction.execute(sql`
    select count(*)::int as count,
      string_agg(distinct coalesce(host(client_addr), 'this machine'), ', ') as places
    from pg_stat_activity
    where datname = current_database() and application_name in ('session-ledger', 'session-ledger-listen')`);
  const count = Number(others?.["count"]);
  if (count === 0) return;
  const connections = count === 1 ? "1 connection" : `${count} connections`;
  const message = `session-ledger is connected to this database (${connections}, from ${String(others?.["places"])}): stop the instances first, or add --force`;
  throw new ServiceError("failed_precondition", "SCHEMA_IN_USE", message);
}

/** The table of applied migrations: Drizzle's place, or the chosen schema. */
function tableOf(schema: string | undefined): string {
  return `"${schema ?? "drizzle"}".__drizzle_migrations`;
}

/** Creates a chosen schema. Refuses a state in which the migration would fail half-way. */
async function prepare(
  transaction: Transaction,
  { schema, isNew }: SchemaOptions & { readonly isNew: boolean },
): Promise<void> {
  const own = schema ?? "drizzle";
  const [state] = await transaction.execute(sql`
    select quote_ident(current_user) as role, quote_ident(current_database()) as database,
      to_regnamespace(${own}) is null as missing,
      has_database_privilege(current_database(), 'create') as "mayMake"`);
  const [role, database] = [String(state?.["role"]), String(state?.["database"])];
  if (state?.["missing"] === true && state["mayMake"] !== true) {
    throw unusable(
      schema === undefined
        ? `role ${role} may not create schemas in the database ${database}. Type as its owner: GRANT CREATE ON DATABASE ${database} TO ${role}; GRANT CREATE ON SCHEMA public TO ${role}; or: CREATE SCHEMA session_ledger AUTHORIZATION ${role}; CREATE SCHEMA session_ledger_analytics AUTHORIZATION ${role}; and set DATABASE_SCHEMA=session_ledger`
        : `role ${role} may not create the schema ${schema}. Type as the owner of the database: CREATE SCHEMA ${schema} AUTHORIZATION ${role};`,
    );
  }
  // PostgreSQL requires the right to create schemas even where the schema exists already.
  if (state?.["missing"] === true) await executeAll(transaction, [`create schema "${own}"`]);
  const [found] = await transaction.execute(sql`
    select current_schema() as current, quote_ident(current_schema()) as quoted,
      has_schema_privilege(current_schema(), 'create') as "mayMake",
      (select string_agg(relname, ', ' order by relname) from pg_class
        where relnamespace = to_regnamespace(quote_ident(current_schema()))
          and relname = ${anyOf(Object.values(tables).map(getTableName))}) as taken`);
  const { current, mayMake, taken } = found ?? {};
  const quoted = String(found?.["quoted"]);
  if (typeof current !== "string" || (schema !== undefined && current !== schema)) {
    throw unusable(
      `the tables would go to the schema ${quoted}, and not to ${schema ?? "public"}. A pooler that drops search_path does this: set it for the role, by ALTER ROLE ${role} SET search_path = ${schema ?? "public"};`,
    );
  }
  if (mayMake !== true) {
    throw unusable(
      `role ${role} may not create tables in the schema ${quoted}. Type as its owner: GRANT CREATE ON SCHEMA ${quoted} TO ${role}; or: CREATE SCHEMA session_ledger AUTHORIZATION ${role}; CREATE SCHEMA session_ledger_analytics AUTHORIZATION ${role}; and set DATABASE_SCHEMA=session_ledger`,
    );
  }
  if (isNew && typeof taken === "string") {
    throw unusable(
      `the schema ${quoted} has tables of other programs with the names of ours (${taken}): set DATABASE_SCHEMA, for example to session_ledger, or use another database`,
    );
  }
  await prepareAnalytics(transaction, { schema, isNew, role, database });
}

/** A schema of that name with other views is another program's. */
async function prepareAnalytics(
  transaction: Transaction,
  {
    schema,
    isNew,
    role,
    database,
  }: SchemaOptions & { readonly isNew: boolean; readonly role: string; readonly database: string },
): Promise<void> {
  const own = analyticsSchema(schema);
  const [state] = await transaction.execute(sql`
    select to_regnamespace(${`"${own}"`}) is null as missing,
      has_database_privilege(current_database(), 'create') as "mayMake",
      has_schema_privilege(to_regnamespace(${`"${own}"`}), 'create') as "mayUse",
      exists (select from pg_class where relnamespace = to_regnamespace(${`"${own}"`})
        and relname in ('version', 'sessions', 'runs', 'tools', 'tool_calls', 'daily_usage')) as taken`);
  if (state?.["missing"] === true && state["mayMake"] === true) {
    await executeAll(transaction, [`create schema "${own}"`]);
    return;
  }
  if (state?.["mayUse"] !== true)
    throw unusable(
      `role ${role} may not make views in the schema ${own}. Type as the owner of the database ${database}: CREATE SCHEMA IF NOT EXISTS ${own}; GRANT USAGE, CREATE ON SCHEMA ${own} TO ${role};`,
    );
  if (isNew && state["taken"] === true)
    throw unusable(
      `the schema ${own} has views of other programs with the names of ours: set DATABASE_SCHEMA, for example to session_ledger, or use another database`,
    );
}

function unusable(why: string): ServiceError {
  return settingRefused("DATABASE_URL", `the database cannot be used: ${why}`);
}

/**
 * The tables with hash partitions (docs/operations.md, "Partitions"), in a new database: PostgreSQL cannot
 * divide a table that exists.
 */
const PARTITIONED = [tables.sessionMessages, tables.sessionEvents, tables.sessionTexts].map(
  getTableName,
);

/** The statements of a migration, with as many partitions for each of these tables that it creates. */
function withPartitions(statements: readonly string[], partitions: number): readonly string[] {
  return statements.flatMap((statement) => {
    const name = PARTITIONED.find((table) => statement.includes(`CREATE TABLE "${table}"`));
    if (name === undefined) return [statement];
    const parts = Array.from(
      { length: partitions },
      (_, at) =>
        `CREATE TABLE "${name}_p${at}" PARTITION OF "${name}" FOR VALUES WITH (MODULUS ${partitions}, REMAINDER ${at})`,
    );
    return [`${statement.trim().replace(/;$/, "")} PARTITION BY HASH ("session_id")`, ...parts];
  });
}

/** Rejects if the tables that exist have another number of partitions. */
async function refuseOtherPartitions(transaction: Transaction, partitions: number): Promise<void> {
  const [row] = await transaction.execute(sql`
    select count(*)::int as count from pg_inherits where inhparent = to_regclass(${PARTITIONED[0]})`);
  const count = Number(row?.["count"]);
  if (count === partitions) return;
  const found = count === 0 ? "without partitions" : `with ${count} partitions`;
  throw settingRefused(
    "--partitions",
    `the tables exist already ${found}, expected a new database: dump this one, and restore it into another`,
  );
}

async function executeAll(transaction: Transaction, statements: readonly string[]): Promise<void> {
  for (const statement of statements) await transaction.execute(sql.raw(statement));
}

function migrationsIn(folder: string): readonly Migration[] {
  const journal: { entries: { tag: string; when: number }[] } = JSON.parse(
    readFileSync(join(folder, "meta", "_journal.json"), "utf8"),
  );
  return journal.entries.map(({ tag, when }) => {
    const text = textOf(folder, `${tag}.sql`);
    const statements = text.split(BREAKPOINT);
    return {
      tag,
      appliedAs: when,
      hash: createHash("sha256").update(text).digest("hex"),
      statements,
    };
  });
}

/** The name of the other schema, as in psql: its views read the tables, so it cannot be a search path. */
function named(statements: readonly string[], schema: string | undefined): readonly string[] {
  return statements.map((text) => text.replaceAll(':"analytics"', `"${analyticsSchema(schema)}"`));
}

/** The text of a file, with its included files. */
function textOf(folder: string, file: string): string {
  const text = readFileSync(join(folder, file), "utf8");
  return text.replaceAll(/^-- (include|replace) (.+)$/gm, (_line, how: string, other: string) => {
    const included = textOf(folder, other);
    if (how === "include") return included;
    return included.replaceAll(/^CREATE (?=FUNCTION|VIEW)/gm, "CREATE OR REPLACE ");
  });
}

async function statusOf(
  transaction: Transaction,
  place: string,
  migrations: readonly Migration[],
): Promise<MigrationStatus> {
  const [table] = await transaction.execute(sql`select to_regclass(${place})::text as name`);
  const rows =
    typeof table?.["name"] !== "string"
      ? []
      : await transaction.execute(sql`select created_at::text as at, hash from ${sql.raw(place)}`);
  const applied = new Map(rows.map((row) => [Number(row["at"]), String(row["hash"])]));
  refuseUnreleased(applied, migrations);
  const here = migrations.filter((migration) => applied.has(migration.appliedAs));
  return {
    applied: here.map((migration) => migration.tag),
    pending: migrations.filter((migration) => !applied.has(migration.appliedAs)).map((m) => m.tag),
    unknown: applied.size - here.length,
  };
}

/** Schemas from before the first migration, and from a first one that was changed in place later. */
function refuseUnreleased(
  applied: ReadonlyMap<number, string>,
  migrations: readonly Migration[],
): void {
  const [first] = migrations;
  if (first === undefined) return;
  const isOlder = [...applied.keys()].some((at) => at < first.appliedAs);
  const hasOther = migrations.some(
    ({ appliedAs, hash }) => (applied.get(appliedAs) ?? hash) !== hash,
  );
  if (!isOlder && !hasOther) return;
  const message =
    "the database was made by a development version from before 0.1.0, and only that version can read it. To move its sessions, dump them with that version, and restore them with this one into another DATA_DIR, DATABASE_URL or DATABASE_SCHEMA";
  throw new ServiceError("failed_precondition", "SCHEMA_OLDER", message);
}

function refuseNewer(status: MigrationStatus): MigrationStatus {
  if (status.unknown === 0) return status;
  const message = `the database schema is newer than this version of session-ledger (${status.unknown} unknown migrations): run the newer version, or migrate down with it first`;
  throw new ServiceError("failed_precondition", "SCHEMA_NEWER", message);
}
