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
  /** postgres:// URL. */
  readonly url: string;
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
/** Longest wait for running statements at the end. */
const CLOSE_TIMEOUT_S = 5;

export function createDatabase(options: DatabaseOptions): Database {
  const client = postgres(options.url, {
    max: options.connectionsMax,
    connect_timeout: CONNECT_TIMEOUT_S,
    // Idle connections are kept: the first push after a pause must not pay for a connection.
    onnotice: () => undefined,
    // postgres.js waits longer after each failed connection; a database that restarts is back within
    // a second or two, and the callers' retries are the ones that back off.
    backoff: () => 0.1,
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
  const dialect = new PgDialect();
  const database = drizzle(client);

  async function attempt(statement: SQL): Promise<readonly Fields[]> {
    const { sql: text, params } = dialect.sqlToQuery(statement);
    return client.unsafe<Fields[]>(text, params as never[], { prepare: true });
  }
  return {
    drizzle: database,
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
      await this.ping();
    },
    async stop() {
      await client.end({ timeout: CLOSE_TIMEOUT_S });
    },
  };
}
