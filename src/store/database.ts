/**
 * The pool of connections.
 *
 * Statements are Drizzle `sql` templates. Drizzle's driver session sends them unprepared, which
 * costs a second round trip and a parse each time; here its dialect renders them, and the client
 * sends them prepared. Every statement has our own deadline too, because the server's answer cannot
 * arrive when the network drops packets.
 */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { urlsOfHosts } from "../base/postgres-hosts.ts";
import type { Unit } from "../base/unit.ts";
import {
  codeOf,
  drizzleError,
  errorOfDriver,
  isConnectionLost,
  storeError,
  UNSAFE,
} from "./failure.ts";
import { type Pool, POOL_LEFT, Pools, PoolSockets, type SocketTarget } from "./pools.ts";
import { findPrimary } from "./primary.ts";
import { within } from "@session-ledger/base/timers";

/** For the statements of other rooms: only this room names the package. */
export { sql, type SQL };

export interface DatabaseOptions {
  /** postgres:// URL; read at start, because an embedded server has no port before. */
  readonly url: () => string;
  readonly connectionsMax: number;
  /** A statement that runs longer is cancelled; its caller gets UNAVAILABLE. */
  readonly statementTimeoutMs: number;
  /** The time that a batch for a single session waits for its lock. */
  readonly lockTimeoutMs: number;
  /** True: for the functions that push, whose plans must not depend on the size of the tables. */
  readonly hasFixedPlans?: boolean;
  /** True: commits that PostgreSQL may lose are acknowledged too. */
  readonly allowsLoss?: boolean;
  /** True: sessions are on several nodes, and a statement that names several of them needs all. */
  readonly isSharded?: boolean;
}

/** Connections with this URL see this schema and no other: the driver sends its parameters. */
export function inSchema(url: string, schema: string | undefined): string {
  if (schema === undefined) return url;
  return `${url}${url.includes("?") ? "&" : "?"}search_path=${encodeURIComponent(`"${schema}"`)}`;
}

/**
 * A statement of the push path: its text never changes, and only the values of its $1, $2, … do.
 * Drizzle renders a template for each call, which took 208 calls of its functions for each push.
 */
export interface FixedStatement {
  readonly text: string;
  readonly values: readonly Bound[];
}

export interface Database extends Unit {
  /**
   * On a sharded engine a call has one session, and this number of calls are sent at once, each on its
   * connection. Undefined: a call has any number of sessions.
   */
  readonly sessionCallsMax: number | undefined;
  /** Runs a query of Drizzle's builder; rejects with a ServiceError or a defect. */
  query<T>(build: (drizzle: PostgresJsDatabase) => PromiseLike<T>): Promise<T>;
  /** One transaction; rejects with a ServiceError or a defect. No `prepare`: planned each time. */
  run(
    statement: SQL | FixedStatement,
    how?: { readonly prepare: boolean },
  ): Promise<readonly Fields[]>;
  /**
   * Like `run`, with the columns in the server's bytes: for rows that are mostly passed on. `onRow` gets
   * each row when it arrives: rows that wait for the last one are work for the garbage collector.
   */
  columns(
    statement: SQL,
    onRow: (row: RawRow) => void,
    how?: { readonly prepare: boolean },
  ): Promise<void>;
  /** Like `run`, but rejects with the driver's own error, for callers that may retry. */
  attempt(statement: SQL | FixedStatement): Promise<readonly Fields[]>;
  /** Several statements on a separate connection: for commands, and never for requests. */
  transaction<T>(work: (transaction: Transaction) => Promise<T>): Promise<T>;
  /** Called with each answer that names its server (`SERVER`), before the answer is used. */
  onAnswer(server: Field | undefined): void;
  /** Like `onAnswer`, for a commit: rejects it if the connection that answered may lose commits. */
  onCommit(server: Field | undefined): void;
  /** The reason why commits of the connection that answered last may be lost. */
  loss(): string | undefined;
  /**
   * Calls back when another server process answers than before: after a restart, the promotion of a
   * standby, or the restore of a backup. The newest rows of the previous server may be lost.
   */
  onOtherServer(called: () => void): void;
}

/**
 * The start time of the server process, and the settings of the connection on which it depends
 * whether a commit is on disk. Every role may read them, and they are read once a statement: behind
 * a pooler each statement may have another connection, and no other place sees all of them.
 */
export const SERVER_TEXT = `(select concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
    current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('synchronous_standby_names') <> ''))`;
export const SERVER = sql.raw(SERVER_TEXT);

/** The start time of the server process that gave the answer. */
export function startOf(server: Field | undefined): string {
  return String(server).split(" ", 1)[0] ?? "";
}

/** The reason why a commit of a connection may be lost; undefined: it is on disk. */
export function lossOf(server: string): string | undefined {
  const [, commit, fsync, hasStandbys] = server.split(" ");
  if (fsync === "off") return "fsync is off, expected on";
  if (commit === "off") return "synchronous_commit is off, expected on";
  if (commit === "local" && hasStandbys === "t")
    return "synchronous_commit is local, and synchronous_standby_names is set: expected on, remote_write or remote_apply";
  return undefined;
}

/**
 * A plan made while the tables were empty must not scan them when they are large; hash joins, merge
 * joins and bitmaps read all sessions, or all rows of one. Planning these statements on each call
 * would cost more than running them. As settings of functions these cost 19 µs a call.
 */
export const FIXED_PLANS = {
  enable_seqscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_bitmapscan: "off",
  plan_cache_mode: "force_generic_plan",
  jit: "off",
};

/** A connection attempt is given up after this time; the next call tries again. */
const CONNECT_TIMEOUT_S = 5;
const RECONNECT_DELAY_S = 0.1;
/** Given up after it: the server's own cancel of a slow statement may not arrive. */
const ANSWER_GRACE_MS = 2_000;

export function createDatabase(options: DatabaseOptions): Database {
  const pools = new Pools((lost) => connectPool(options, lost));
  const answerLimit = answerLimitOf(options.statementTimeoutMs + ANSWER_GRACE_MS);

  async function answered<T>(ask: (pool: Pool) => PromiseLike<T>): Promise<T> {
    for (;;) {
      const pool = pools.current;
      try {
        const answer = await within(ask(pool), answerLimit);
        pool.hasWorked = true;
        return answer;
      } catch (error) {
        const cause = errorOfDriver(error);
        if (isConnectionLost(cause)) pools.retire(pool);
        // The statement was not sent, and another pool exists.
        if (codeOf(cause) !== POOL_LEFT || !pools.isOpen) throw error;
      }
    }
  }
  async function attempt(
    statement: SQL | FixedStatement,
    how = { prepare: true },
  ): Promise<readonly Fields[]> {
    const { text, values } = "text" in statement ? statement : rendered(statement);
    return answered((pool) => pool.client.unsafe<Fields[]>(text, [...values], how));
  }
  return {
    sessionCallsMax: options.isSharded === true ? options.connectionsMax : undefined,
    attempt,
    async query(build) {
      try {
        return await answered((pool) => build(pool.drizzle));
      } catch (error) {
        throw drizzleError(error);
      }
    },
    async columns(statement, onRow, how = { prepare: true }) {
      const { text, values } = rendered(statement);
      const { take, failures } = guarded(onRow);
      try {
        await answered((pool) =>
          pool.client
            .unsafe(text, [...values], how)
            .raw()
            .forEach(take),
        );
      } catch (error) {
        throw storeError(error);
      }
      if (failures.length > 0) throw failures[0];
    },
    async run(statement, how) {
      try {
        return await attempt(statement, how);
      } catch (error) {
        throw storeError(error);
      }
    },
    transaction: (work) => onOneConnection(options, { answerLimit, work }),
    ...answeringServer(options),
    async start() {
      pools.open();
      await this.run(sql`select 1`);
    },
    stop: () => pools.close(),
  };
}

/** After an error in the driver's callback the driver asks the server to sync a second time. */
function guarded(onRow: (row: RawRow) => void) {
  const failures: unknown[] = [];
  const take = (row: RawRow): void => {
    try {
      onRow(row);
    } catch (error) {
      failures.push(error);
    }
  };
  return { take, failures };
}

async function onOneConnection<T>(
  options: DatabaseOptions,
  { answerLimit, work }: { answerLimit: AnswerLimit; work: (one: Transaction) => Promise<T> },
): Promise<T> {
  let pool: Pool | undefined;
  const connect = (lost: () => void): postgres.Sql =>
    (pool = connectPool({ ...options, connectionsMax: 1 }, lost)).client;
  try {
    return await inTransaction({ connect, answerLimit }, work);
  } catch (error) {
    throw storeError(error);
  } finally {
    pool?.sockets.refuse("CONNECTION_ENDED");
    await pool?.sockets.destroy();
  }
}

export function connectPool(options: DatabaseOptions, lost: () => void): Pool {
  const urls = urlsOfHosts(options.url());
  const find = async (): Promise<SocketTarget> => (await findPrimary(urls)).target;
  const sockets = new PoolSockets(urls.length > 1 ? find : undefined);
  // The driver documents `socket`, but its types do not have it.
  const driverOptions = {
    max: options.connectionsMax,
    connect_timeout: CONNECT_TIMEOUT_S,
    onnotice: () => undefined,
    onclose: lost,
    // We bind no arrays, and a connection that is lost during this query never rejects.
    fetch_types: false,
    // A connection ends with its pool; an end after half an hour would look like a loss.
    max_lifetime: null,
    // A restarting database is back within seconds, and ingest and live have their own backoff.
    backoff: () => (sockets.isRefusing ? 0 : RECONNECT_DELAY_S),
    socket: (target: SocketTarget) => sockets.make(target),
    connection: {
      application_name: "session-ledger",
      TimeZone: "UTC",
      DateStyle: "ISO",
      // Set here and not left to the server: "acknowledged" means "on disk".
      synchronous_commit: "on",
      statement_timeout: options.statementTimeoutMs,
      lock_timeout: options.lockTimeoutMs,
      idle_in_transaction_session_timeout: options.statementTimeoutMs,
      ...(options.hasFixedPlans === true ? FIXED_PLANS : {}),
      // A plan has the node of the session, which a parameter names.
      ...(options.isSharded === true ? { plan_cache_mode: "force_custom_plan" } : {}),
    },
  };
  // With several hosts the driver would report no failed connection.
  const client = postgres(urls[0] ?? "", driverOptions);
  return { client, drizzle: drizzle(client), sockets, hasWorked: false };
}

/** Tracks the server that answers, and calls back when another one does. */
function answeringServer({
  allowsLoss = false,
}: DatabaseOptions): Pick<Database, "onAnswer" | "onCommit" | "loss" | "onOtherServer"> {
  const listeners: (() => void)[] = [];
  let last = "";
  let started: string | undefined;
  let loss: string | undefined;
  function onAnswer(answer: Field | undefined): void {
    if (answer === last || typeof answer !== "string") return;
    last = answer;
    loss = allowsLoss ? undefined : lossOf(answer);
    const before = started;
    started = startOf(answer);
    if (before !== undefined && before !== started) for (const listener of listeners) listener();
  }
  return {
    onAnswer,
    onCommit(answer) {
      onAnswer(answer);
      if (loss !== undefined) throw Object.assign(new Error(loss), { code: UNSAFE });
    },
    loss: () => loss,
    onOtherServer: (called) => void listeners.push(called),
  };
}

/**
 * A transaction of several statements, on a separate connection that ends with it. Only commands
 * and the start use it: requests are served with single statements, over the pool.
 *
 * It does not use the driver's transaction. When a connection is lost in a `begin` of postgres.js
 * 3.4.9, between two statements or in one of them, the next statement, even the ROLLBACK, is
 * written to a socket that is gone. That is a TypeError outside of every promise, which ends the
 * process (`nextWrite` in connection.js). A pool of one connection opens another connection
 * instead, where the remaining statements would run outside of the transaction. So after the first
 * failure or a loss, nothing more is sent, not even a ROLLBACK: the connection ends, and PostgreSQL
 * rolls back. This file reports a loss to the caller, because the driver forgets statements that
 * were sent between the error of a socket and its end.
 *
 *   begin ──► statements ──► commit ──► end
 *     └───────────┴─ failed, or lost ────►│
 */

export type Field = string | number | boolean | null | Uint8Array;
/** One row of an answer, by the names of its columns. */
export type Fields = Readonly<Record<string, Field>>;

/** A bigint of an answer: the driver gives it as text. */
export function bigintOf(field: Field | undefined): bigint {
  if (typeof field !== "string") throw new TypeError("a number is missing");
  return BigInt(field);
}

/** One row of an answer in the text form of the server; null for null. */
export type RawRow = readonly (Buffer | null)[];

export interface Transaction {
  /** One statement at a time; rejects with the driver's own error. */
  execute(statement: SQL): Promise<readonly Fields[]>;
}

interface TransactionParts {
  /** A client of one connection; `lost` is called before any statement rejects. */
  readonly connect: (lost: () => void) => postgres.Sql;
  /** Of each statement; undefined: a statement may take any time. */
  readonly answerLimit: AnswerLimit | undefined;
}

/** The limit of the goodbye to the server; then the socket is closed. */
const END_TIMEOUT_S = 1;

/** Rejects with the error of the driver or of `work`. A lost COMMIT has an unknown effect. */
export async function inTransaction<T>(
  { connect, answerLimit }: TransactionParts,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  const broken = Promise.withResolvers<never>();
  let isBroken = false;
  const end = (error: unknown): void => {
    isBroken = true;
    broken.reject(error);
  };
  broken.promise.catch(() => undefined); // It may reject when no code waits for it.
  const client = connect(() => end(lostError()));
  const execute = async (statement: SQL): Promise<readonly Fields[]> => {
    if (isBroken) return broken.promise;
    const { text, values } = rendered(statement);
    const answer = Promise.race([client.unsafe<Fields[]>(text, [...values]), broken.promise]);
    try {
      return await (answerLimit === undefined ? answer : within(answer, answerLimit));
    } catch (error) {
      end(error);
      throw error;
    }
  };
  try {
    await execute(sql`begin`);
    const result = await work({ execute });
    await execute(sql`commit`);
    return result;
  } finally {
    await client.end({ timeout: END_TIMEOUT_S });
  }
}

type AnswerLimit = ReturnType<typeof answerLimitOf>;

/** Rejects after the limit; the statement may still take effect, and its answer is lost. */
function answerLimitOf(limitMs: number) {
  const onTimeout = (): Promise<never> =>
    Promise.reject(
      Object.assign(new Error(`no answer within ${limitMs} ms`), { code: "ETIMEDOUT" }),
    );
  return { limitMs, onTimeout };
}

/** The only types that our statements bind; each statement casts the text as needed. */
type Bound = string | number | boolean | null;

const dialect = new PgDialect();

function rendered(statement: SQL): FixedStatement {
  const { sql: text, params } = dialect.sqlToQuery(statement);
  return { text, values: params.map(parameterOf) };
}

function parameterOf(value: unknown): Bound {
  if (value === null) return value;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return value;
  throw new TypeError(`a statement binds a ${typeof value}`);
}

/** The same error as the driver's for a statement in progress. */
function lostError(): Error {
  const message = "the connection was lost in a transaction";
  return Object.assign(new Error(message), { code: "CONNECTION_CLOSED" });
}
