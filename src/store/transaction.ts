/**
 * A transaction of several statements, on a connection of its own that ends with it. For commands and for
 * the start: what a service does while it serves is single statements, over its pool.
 *
 * It is not the driver's. When a connection is lost in a `begin` of postgres.js 3.4.9, between two
 * statements or in one of them, the next one, be it the ROLLBACK, is written to a socket that is gone: a
 * TypeError outside of every promise, which ends the process (`nextWrite` in connection.js). A pool of
 * one connection makes another one instead, on which the rest would run outside of the transaction; so
 * after the first failure, or a loss, nothing more is sent. Nor is a ROLLBACK: the connection ends, and
 * PostgreSQL does it. Whoever waits is told of a loss by us: what was sent between the error of a socket
 * and its end, the driver forgets.
 *
 *   begin ──► statements ──► commit ──► end
 *     └───────────┴─ failed, or lost ────►│
 */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type postgres from "postgres";

export type Field = string | number | boolean | null | Uint8Array;
/** One row of an answer, by the names of its columns. */
export type Fields = Readonly<Record<string, Field>>;

export interface Transaction {
  /** One statement at a time, with the driver's error as it is. */
  execute(statement: SQL): Promise<readonly Fields[]>;
}

export interface TransactionParts {
  /** A client of one connection; `lost` is called when the connection is gone, before anybody learns of it. */
  readonly connect: (lost: () => void) => postgres.Sql;
  /** Of each statement; undefined: it may wait, and take its time. */
  readonly answerLimitMs: number | undefined;
}

/** To say good-bye to the server takes no longer; then the socket is closed. */
const END_TIMEOUT_S = 1;

/** Rejects with the driver's error, or with that of `work`; of a lost COMMIT nobody knows what it did. */
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
  broken.promise.catch(() => undefined); // It may break when nobody waits.
  const client = connect(() => end(lostError()));
  const execute = async (statement: SQL): Promise<readonly Fields[]> => {
    if (isBroken) return broken.promise;
    const { sql: text, params } = dialect.sqlToQuery(statement);
    const answer = Promise.race([
      client.unsafe<Fields[]>(text, params.map(parameterOf)),
      broken.promise,
    ]);
    try {
      return await (answerLimitMs === undefined ? answer : within(answerLimitMs, answer));
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

/** Rejects after the limit; what was asked may still be done, and nobody will know. */
export async function within<T>(limitMs: number, answer: PromiseLike<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    reject(Object.assign(new Error(`no answer within ${limitMs} ms`), { code: "ETIMEDOUT" }));
  }, limitMs);
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Our statements bind these and no others; what PostgreSQL makes of the text is cast in the statement. */
export function parameterOf(value: unknown): string | number | boolean | null {
  if (value === null) return value;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return value;
  throw new TypeError(`a statement binds a ${typeof value}`);
}

/** As the driver says it of a statement that was under way. */
function lostError(): Error {
  const message = "the connection was lost in a transaction";
  return Object.assign(new Error(message), { code: "CONNECTION_CLOSED" });
}
