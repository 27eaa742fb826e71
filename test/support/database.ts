import { randomUUID } from "node:crypto";
import postgres from "postgres";
import { inject } from "vitest";

export interface TestDatabase {
  readonly url: string;
  drop(): Promise<void>;
}

/** A new database for a test file, empty or a copy of the named template. */
export async function createDatabase(
  options: { readonly template?: string } = {},
): Promise<TestDatabase> {
  const serverUrl = inject("postgresUrl");
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  const template = options.template ?? "template0";
  await onServer(serverUrl, (sql) => sql`create database ${sql(name)} template ${sql(template)}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    // By force: a failed test may have left connections, and its own failure is the one to report.
    drop: () =>
      onServer(serverUrl, (sql) => sql`drop database if exists ${sql(name)} with (force)`),
  };
}

/** A database with the tables of the service and no rows. */
export function createLedgerDatabase(): Promise<TestDatabase> {
  return createDatabase({ template: inject("postgresTemplate") });
}

export interface OpenDatabase {
  readonly url: string;
  readonly sql: postgres.Sql;
  /** Closes the connections and drops the database. */
  stop(): Promise<void>;
}

/** For a file that starts its own services, with a connection for the test; with tables, or empty. */
export async function openDatabase(
  options: { readonly empty?: boolean } = {},
): Promise<OpenDatabase> {
  const created = await (options.empty === true ? createDatabase() : createLedgerDatabase());
  const sql = postgres(created.url, { max: 3, onnotice: () => undefined });
  return {
    url: created.url,
    sql,
    async stop() {
      await sql.end({ timeout: 1 });
      await created.drop();
    },
  };
}

async function onServer(
  url: string,
  statement: (sql: postgres.Sql) => PromiseLike<unknown>,
): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    await statement(sql);
  } finally {
    await sql.end();
  }
}
