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
 *
 * Nor does a pool that was ended stay without connections: for each statement that still waits in it the
 * driver connects again (onclose() in index.js), and what it connects after or during `end` is never
 * ended (10 ended backends of a busy pool left 35 sockets, test/postgres/pools.test.ts). So the sockets
 * of a pool are made here. A pool that is left is given no more, its waiting statements, which were never
 * sent, go to the fresh pool, and what is still open after the goodbye is destroyed.
 */
import { connect as connectSocket, type Socket } from "node:net";
import { Duplex } from "node:stream";
import type { PostgresJsDatabase } from "drizzle-orm/postgres-js";
import type postgres from "postgres";

export interface Pool {
  readonly client: postgres.Sql;
  readonly drizzle: PostgresJsDatabase;
  readonly sockets: PoolSockets;
}

/** What is under way when the service stops may take so long. */
const CLOSE_TIMEOUT_S = 5;
/** In a pool that lost a connection, what is not done by then is most likely never done. */
const RETIRE_TIMEOUT_S = 1;

/** The statement was not sent: its pool was left before a connection was free for it. */
export const POOL_LEFT = "POOL_LEFT";

/** Where to connect, as the driver tells a maker of sockets. */
export interface Target {
  readonly host: readonly string[];
  readonly port: readonly number[];
  /** Of a socket in the file system. */
  readonly path: string | false;
}

/** A socket on its way to the server; of several hosts any one, so that the next one is another. */
export function connectTo({ host, port, path }: Target): Socket {
  const at = Math.floor(Math.random() * host.length);
  const name = host[at] ?? "localhost";
  const socket = path === false ? connectSocket(port[at] ?? 5_432, name) : connectSocket(path);
  return Object.assign(socket, { host: name }); // By which the driver checks a certificate.
}

/** All sockets of one pool. */
export class PoolSockets {
  readonly #open = new Set<Socket>();
  #refusedAs: string | undefined;

  get isRefusing(): boolean {
    return this.#refusedAs !== undefined;
  }

  /** For the driver, which sets its listeners in the same turn of the loop. */
  make(target: Target): Duplex {
    if (this.#refusedAs !== undefined) return refused(this.#refusedAs);
    for (const socket of this.#open) if (socket.closed) this.#open.delete(socket);
    const socket = connectTo(target);
    this.#open.add(socket);
    return socket;
  }

  /** From now on connections fail, with this code. */
  refuse(code: string): void {
    this.#refusedAs ??= code;
  }

  /** Resolves when none is open. */
  async destroy(): Promise<void> {
    const open = [...this.#open].filter((socket) => !socket.closed);
    await Promise.all(
      open.map((socket) => {
        const closed = new Promise((resolve) => socket.once("close", resolve));
        socket.destroy();
        return closed;
      }),
    );
  }
}

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

  get isOpen(): boolean {
    return this.#current !== undefined;
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
    this.#leave(pool, POOL_LEFT, RETIRE_TIMEOUT_S);
  }

  async close(): Promise<void> {
    const pool = this.#current;
    this.#current = undefined;
    if (pool !== undefined) this.#leave(pool, "CONNECTION_ENDED", CLOSE_TIMEOUT_S);
    await Promise.all(this.#closing);
  }

  #leave(pool: Pool, code: string, timeoutS: number): void {
    pool.sockets.refuse(code);
    const closing = pool.client
      .end({ timeout: timeoutS })
      .catch(() => undefined) // The callers of what was under way have been told.
      .then(() => pool.sockets.destroy())
      .finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}

/** To the driver it is a connection that failed: it tells the statement, and goes on to the next. */
function refused(code: string): Duplex {
  const socket = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  const error = Object.assign(new Error("the pool was left"), { code });
  setImmediate(() => socket.destroy(error));
  return socket;
}
