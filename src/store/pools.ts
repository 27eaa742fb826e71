/**
 * The pool in use, and those that are being left.
 *
 * A pool of postgres.js 3.4.9 cannot be trusted once it has lost a connection: a connection that was
 * cut while a small write was pending never writes again, and statements that are given to it hang
 * (porsager/postgres #1097, #1130, #1142; in connection.js, closed() leaves nextWriteTimer set). So
 * the first loss retires the whole pool. New statements go to a fresh one; those under way on healthy
 * connections finish, and what hangs fails when the old pool is cut off, with an unknown outcome.
 */
import type { PostgresJsDatabase } from "drizzle-orm/postgres-js";
import type postgres from "postgres";

export interface Pool {
  readonly client: postgres.Sql;
  readonly drizzle: PostgresJsDatabase;
}

/** What is under way in a pool that is left, and at the end, may take so long. */
const CLOSE_TIMEOUT_S = 5;

export class Pools {
  readonly #connect: () => Pool;
  #current: Pool | undefined;
  readonly #closing = new Set<Promise<void>>();

  constructor(connect: () => Pool) {
    this.#connect = connect;
  }

  get current(): Pool {
    if (this.#current !== undefined) return this.#current;
    throw new Error("the database was used before its start or after its stop");
  }

  open(): void {
    this.#current = this.#connect();
  }

  /** Once a pool: of the many statements that a loss fails, the first does it. */
  retire(pool: Pool): void {
    if (pool !== this.#current) return;
    this.#current = this.#connect();
    this.#leave(pool);
  }

  async close(): Promise<void> {
    if (this.#current !== undefined) this.#leave(this.#current);
    this.#current = undefined;
    await Promise.all(this.#closing);
  }

  #leave(pool: Pool): void {
    const closing = pool.client
      .end({ timeout: CLOSE_TIMEOUT_S })
      .catch(() => undefined) // Whoever was waiting has been told.
      .finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}
