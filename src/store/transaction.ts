/**
 * A transaction of several statements, on a connection of its own that ends with it. Only commands
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
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type postgres from "postgres";
import { within } from "../base/timers.ts";

export type Field = string | number | boolean | null | Uint8Array;
/** One row of an answer, by the names of its columns. */
export type Fields = Readonly<Record<string, Field>>;

export interface Transaction {
  /** One statement at a time; rejects with the driver's own error. */
  execute(statement: SQL): Promise<readonly Fields[]>;
}

export interface TransactionParts {
  /**
   * A client of one connection; `lost` is called when the connection is gone, before any statement
   * rejects.
   */
  readonly connect: (lost: () => void) => postgres.Sql;
  /** The limit of each statement; undefined: a statement may take any time. */
  readonly answerLimitMs: number | undefined;
}

/** The limit of the goodbye to the server; then the socket is closed. */
const END_TIMEOUT_S = 1;

/**
 * Rejects with the driver's error, or with that of `work`. The effect of a lost COMMIT is unknown.
 */
export async function inTransaction<T>(
  { connect, answerLimitMs }: TransactionParts,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  const dialect = new PgDialect();
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
    const { sql: text, params } = dialect.sqlToQuery(statement);
    const answer = Promise.race([
      client.unsafe<Fields[]>(text, params.map(parameterOf)),
      broken.promise,
    ]);
    try {
      return await (answerLimitMs === undefined ? answer : answerWithin(answerLimitMs, answer));
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

/** Rejects after the limit; the statement may still take effect, and its answer is lost. */
export function answerWithin<T>(limitMs: number, answer: PromiseLike<T>): Promise<T> {
  const late = (): Promise<T> =>
    Promise.reject(
      Object.assign(new Error(`no answer within ${limitMs} ms`), { code: "ETIMEDOUT" }),
    );
  return within(answer, { limitMs, late });
}

/** The only types that our statements bind; each statement casts the text as needed. */
export function parameterOf(value: unknown): string | number | boolean | null {
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
