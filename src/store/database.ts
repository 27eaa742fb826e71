/**
 * The pool of connections, and the one way by which statements reach it.
 *
 * Statements are Drizzle `sql` templates. Drizzle's own driver session sends a raw template
 * unprepared, which with postgres.js costs a second round trip and a parse each time; here they are
 * rendered by Drizzle's dialect and sent prepared, over the very same client.
 */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import type { Unit } from "../base/lifecycle.ts";
import { storeError } from "./failure.ts";

export interface DatabaseOptions {
  /** postgres:// URL; asked for at start, because an embedded server has its port only then. */
  readonly url: () => string;
  readonly connectionsMax: number;
  /** A statement that runs longer is cancelled; its caller gets UNAVAILABLE. */
  readonly statementTimeoutMs: number;
  /** How long a batch that waits for one session waits. */
  readonly lockTimeoutMs: number;
}

export type Field = string | number | boolean | null | Uint8Array;
export type Fields = Readonly<Record<string, Field>>;

export interface Database extends Unit {
  readonly drizzle: PostgresJsDatabase;
  /** Runs one statement as a transaction of its own; rejects with a ServiceError or a defect. */
  run(statement: SQL): Promise<readonly Fields[]>;
  /** As `run`, with the driver's error as it is, for callers that decide on a retry by it. */
  attempt(statement: SQL): Promise<readonly Fields[]>;
  /** Resolves when the database answers. */
  ping(): Promise<void>;
}

/** A connection that cannot be made is given up after this; the next call tries again. */
const CONNECT_TIMEOUT_S = 5;
const RECONNECT_DELAY_S = 0.1;
/** Longest wait for running statements at the end. */
const CLOSE_TIMEOUT_S = 5;

export function createDatabase(options: DatabaseOptions): Database {
  const dialect = new PgDialect();
  let pool: { readonly client: postgres.Sql; readonly drizzle: PostgresJsDatabase } | undefined;

  function opened(): NonNullable<typeof pool> {
    if (pool === undefined)
      throw new Error("the database was used before its start or after its stop");
    return pool;
  }
  async function attempt(statement: SQL): Promise<readonly Fields[]> {
    const { sql: text, params } = dialect.sqlToQuery(statement);
    const values = params.map(parameterOf);
    return opened().client.unsafe<Fields[]>(text, values, { prepare: true });
  }
  return {
    get drizzle() {
      return opened().drizzle;
    },
    attempt,
    async run(statement) {
      try {
        return await attempt(statement);
      } catch (error) {
        throw storeError(error);
      }
    },
    async ping() {
      await attempt(sql`select 1`);
    },
    async start() {
      const client = connect(options);
      pool = { client, drizzle: drizzle(client) };
      try {
        await this.ping();
      } catch (error) {
        throw storeError(error);
      }
    },
    async stop() {
      await pool?.client.end({ timeout: CLOSE_TIMEOUT_S });
      pool = undefined;
    },
  };
}

/** Our statements bind these and no others; what PostgreSQL makes of the text is cast in the statement. */
function parameterOf(value: unknown): string | number | boolean | null {
  if (value === null) return value;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return value;
  throw new TypeError(`a statement binds a ${typeof value}`);
}

function connect(options: DatabaseOptions): postgres.Sql {
  return postgres(options.url(), {
    max: options.connectionsMax,
    connect_timeout: CONNECT_TIMEOUT_S,
    onnotice: () => undefined,
    // postgres.js waits longer after each failed connection. A database that restarts is back within
    // a second or two, and it is ingest and live that back off.
    backoff: () => RECONNECT_DELAY_S,
    connection: {
      application_name: "session-ledger",
      TimeZone: "UTC",
      // Set by us and not left to the server: acknowledged means on disk.
      synchronous_commit: "on",
      statement_timeout: options.statementTimeoutMs,
      lock_timeout: options.lockTimeoutMs,
      idle_in_transaction_session_timeout: options.statementTimeoutMs,
    },
  });
}
