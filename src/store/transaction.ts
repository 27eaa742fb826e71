/**
 * A transaction of several statements, on a connection of its own that ends with it. For commands and for
 * the start: what a service does while it serves is single statements, over its pool.
 *
 * It is not the driver's. When a connection is lost in a `begin` of postgres.js 3.4.9, between two
 * statements or in one of them, the next one, be it the ROLLBACK, is written to a socket that is gone: a
 * TypeError outside of every promise, which ends the process (`nextWrite` in connection.js). A pool of
 * one connection makes another one instead, on which the rest would run outside of the transaction; so
 * after a loss nothing more is sent. Nor is a ROLLBACK: the connection ends, and PostgreSQL does it.
 *
 *   begin ──► statements ──► commit ──► end
 *     └───────────┴─ failed, or lost ────►│
 */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type postgres from "postgres";
import type { Fields } from "./database.ts";

export interface Transaction {
  /** One statement at a time, with the driver's error as it is. */
  execute(statement: SQL): Promise<readonly Fields[]>;
}

export interface TransactionParts {
  /** A client of one connection; `lost` is called when the connection is gone, before anybody learns of it. */
  readonly connect: (lost: () => void) => postgres.Sql;
  /** Every statement goes through it, for a deadline. */
  readonly answered: <T>(answer: PromiseLike<T>) => PromiseLike<T>;
}

/** To say good-bye to the server takes no longer; then the socket is closed. */
const END_TIMEOUT_S = 1;

/** Rejects with the driver's error, or with that of `work`; of a lost COMMIT nobody knows what it did. */
export async function inTransaction<T>(
  { connect, answered }: TransactionParts,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  const dialect = new PgDialect();
  let isLost = false;
  const client = connect(() => {
    isLost = true;
  });
  const execute = async (statement: SQL): Promise<readonly Fields[]> => {
    if (isLost) throw lostError();
    const { sql: text, params } = dialect.sqlToQuery(statement);
    const values = params.map(parameterOf);
    return answered(client.unsafe<Fields[]>(text, values));
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
