/**
 * Brings the schema up, one step down, or tells where it is. Drizzle applies what is pending; the
 * steps down are hand-written files beside its own. An advisory lock (here, never in the write path)
 * lets two instances that start at once migrate once: the second waits and finds nothing to do.
 *
 * A schema with a migration that this version does not know is newer than the code: nothing is
 * touched and the service refuses to start, because it cannot know what the newer one relies on.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import { migrate as applyPending } from "drizzle-orm/postgres-js/migrator";
import postgres from "postgres";
import { ServiceError } from "../base/errors.ts";
import { drizzleError } from "./failure.ts";

const FOLDER = join(import.meta.dirname, "migrations");
/** Any number, the same in every version: "sledger" read as a number. */
const LOCK = 0x736c_6564;
const CONNECT_TIMEOUT_S = 10;

interface Migration {
  readonly tag: string;
  readonly appliedAs: number;
}

export interface MigrationStatus {
  readonly applied: readonly string[];
  readonly pending: readonly string[];
  /** Migrations in the database that this version does not know. */
  readonly unknown: number;
}

export async function migrateUp(url: string): Promise<MigrationStatus> {
  return locked(url, async (database) => {
    refuseNewer(await statusOf(database));
    await applyPending(database, { migrationsFolder: FOLDER });
    return statusOf(database);
  });
}

/** Takes back the newest migration, with its rows: the tables go with the first. */
export async function migrateDown(url: string): Promise<MigrationStatus> {
  return locked(url, async (database) => {
    const status = await statusOf(database);
    refuseNewer(status);
    const tag = status.applied.at(-1);
    const migration = known().find((entry) => entry.tag === tag);
    if (migration === undefined) return status;
    const statements = readFileSync(join(FOLDER, `${migration.tag}.down.sql`), "utf8");
    await database.transaction(async (transaction) => {
      for (const statement of statements.split("--> statement-breakpoint")) {
        await transaction.execute(sql.raw(statement));
      }
      await transaction.execute(
        sql`delete from drizzle.__drizzle_migrations where created_at = ${migration.appliedAs}`,
      );
    });
    return statusOf(database);
  });
}

export async function migrationStatus(url: string): Promise<MigrationStatus> {
  return locked(url, statusOf);
}

/** For commands that work on a schema that others keep: it has to be the one that this version knows. */
export async function refuseOtherSchema(url: string): Promise<void> {
  const status = await migrationStatus(url);
  refuseNewer(status);
  if (status.pending.length === 0) return;
  const message = `the database schema is older than this version: run migrate up first (${status.pending.length} migrations pending)`;
  throw new ServiceError("failed_precondition", "SCHEMA_OLDER", message);
}

async function locked<T>(
  url: string,
  work: (database: PostgresJsDatabase) => Promise<T>,
): Promise<T> {
  const client = postgres(url, {
    max: 1,
    onnotice: () => undefined,
    connect_timeout: CONNECT_TIMEOUT_S,
  });
  const database = drizzle(client);
  try {
    await database.execute(sql`select pg_advisory_lock(${LOCK})`);
    return await work(database);
  } catch (error) {
    throw drizzleError(error);
  } finally {
    await client.end({ timeout: CONNECT_TIMEOUT_S }); // The lock ends with its connection.
  }
}

function known(): readonly Migration[] {
  const journal: { entries: { tag: string; when: number }[] } = JSON.parse(
    readFileSync(join(FOLDER, "meta", "_journal.json"), "utf8"),
  );
  const files = readMigrationFiles({ migrationsFolder: FOLDER });
  return journal.entries.map((entry, index) => ({
    tag: entry.tag,
    appliedAs: files[index]?.folderMillis ?? entry.when,
  }));
}

async function statusOf(database: PostgresJsDatabase): Promise<MigrationStatus> {
  const [table] = await database.execute<{ name: string | null }>(
    sql`select to_regclass('drizzle.__drizzle_migrations')::text as name`,
  );
  const rows =
    typeof table?.name !== "string"
      ? []
      : await database.execute<{ at: string }>(
          sql`select created_at::text as at from drizzle.__drizzle_migrations`,
        );
  const applied = new Set(rows.map((row) => Number(row.at)));
  const migrations = known();
  const here = migrations.filter((migration) => applied.has(migration.appliedAs));
  return {
    applied: here.map((migration) => migration.tag),
    pending: migrations.filter((migration) => !applied.has(migration.appliedAs)).map((m) => m.tag),
    unknown: applied.size - here.length,
  };
}

function refuseNewer(status: MigrationStatus): void {
  if (status.unknown === 0) return;
  throw new ServiceError(
    "failed_precondition",
    "SCHEMA_NEWER",
    `the database schema is newer than this version of session-ledger (${status.unknown} unknown migrations): run the newer version, or migrate down with it first`,
  );
}
