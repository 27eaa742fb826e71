/**
 * The pool in use, and those that are being left.
 *
 * A pool of postgres.js 3.4.9 cannot be trusted once it has lost a connection: a connection that was
 * cut while a small write was pending never writes again, and statements that are given to it hang
 * (porsager/postgres #1097, #1130, #1142; in connection.js, closed() leaves nextWriteTimer set). So
 * the first loss retires the whole pool, as soon as the driver reports it or a statement fails of it.
 * New statements go to a fresh one; those under way on healthy connections finish, and what hangs
 * fails when the old pool is cut off, with an unknown outcome. Only a pool that has worked is retired:
 * while the server is down, there is nothing better to replace it with.
 */
import type { PostgresJsDatabase } from "drizzle-orm/postgres-js";
import type postgres from "postgres";

export interface Pool {
  readonly client: postgres.Sql;
  readonly drizzle: PostgresJsDatabase;
}

/** What is under way when the service stops may take so long. */
const CLOSE_TIMEOUT_S = 5;
/** In a pool that lost a connection, what is not done by then is most likely never done. */
const RETIRE_TIMEOUT_S = 1;

export class Pools {
  readonly #connect: (lost: () => void) => Pool;
  #current: Pool | undefined;
  #hasWorked = false;
  readonly #closing = new Set<Promise<void>>();

  /** `connect` is given what to call when a connection of the pool is lost. */
  constructor(connect: (lost: () => void) => Pool) {
    this.#connect = connect;
  }

  get current(): Pool {
    if (this.#current !== undefined) return this.#current;
    throw new Error("the database was used before its start or after its stop");
  }

  open(): void {
    const pool: Pool = this.#connect(() => this.retire(pool));
    this.#current = pool;
    this.#hasWorked = false;
  }

  /** A statement was answered. */
  worked(pool: Pool): void {
    if (pool === this.#current) this.#hasWorked = true;
  }

  /** Once a pool: of the many statements that a loss fails, the first does it. */
  retire(pool: Pool): void {
    if (pool !== this.#current || !this.#hasWorked) return;
    this.open();
    this.#leave(pool, RETIRE_TIMEOUT_S);
  }

  async close(): Promise<void> {
    const pool = this.#current;
    this.#current = undefined;
    if (pool !== undefined) this.#leave(pool, CLOSE_TIMEOUT_S);
    await Promise.all(this.#closing);
  }

  #leave(pool: Pool, timeoutS: number): void {
    const closing = pool.client
      .end({ timeout: timeoutS })
      .catch(() => undefined) // Whoever was waiting has been told.
      .finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}
