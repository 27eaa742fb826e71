/**
 * The pool in use, and the pools that are being retired.
 *
 * A pool of postgres.js 3.4.9 cannot be trusted once it has lost a connection: one that was cut
 * while a small write was pending never writes again, and its statements hang (porsager/postgres
 * #1097, #1130, #1142; in connection.js, closed() leaves nextWriteTimer set). So the first loss
 * retires the pool. New statements go to a fresh one; those in progress finish, and hanging ones
 * fail with an unknown outcome when the old pool is cut off. Only a pool that has worked is
 * retired: while the server is down, a new one is no better.
 *
 * An ended pool may open connections again: the driver connects for each statement that waits in it
 * (onclose() in index.js), and never ends those connections (10 ended backends of a busy pool left
 * 35 sockets, test/postgres/pools.test.ts). So this file makes the sockets of a pool. A retired
 * pool gets no more of them; its waiting statements go to the fresh pool, and open sockets are
 * destroyed after the goodbye.
 */
import { connect as connectSocket, type Socket } from "node:net";
import { Duplex } from "node:stream";
import type { PostgresJsDatabase } from "drizzle-orm/postgres-js";
import type postgres from "postgres";

export interface Pool {
  readonly client: postgres.Sql;
  readonly drizzle: PostgresJsDatabase;
  readonly sockets: PoolSockets;
  /** A statement was answered. */
  hasWorked: boolean;
}

/** Statements in progress when the service stops may take this long. */
const CLOSE_TIMEOUT_S = 5;
/** After the loss of a connection a longer statement of its pool most likely never ends. */
const RETIRE_TIMEOUT_S = 1;

/** The statement was not sent: its pool was retired before a connection was free for it. */
export const POOL_LEFT = "POOL_LEFT";

/** The target of a connection, as the driver passes it to a socket factory. */
export interface SocketTarget {
  readonly host: readonly string[];
  readonly port: readonly number[];
  /** The path of a unix socket. */
  readonly path: string | false;
}

export function connectTo({ host, port, path }: SocketTarget): Socket {
  const [name = "localhost"] = host;
  const socket = path === false ? connectSocket(port[0] ?? 5_432, name) : connectSocket(path);
  // The driver checks a certificate against this name.
  return Object.assign(socket, { host: name });
}

/** All sockets of one pool. */
export class PoolSockets {
  readonly #open = new Set<Socket>();
  readonly #find: (() => Promise<SocketTarget>) | undefined;
  /** Connections that are made at the same time share one search. */
  #finding: Promise<SocketTarget> | undefined;
  #refusedAs: string | undefined;

  /** `find` names the server of a new connection; undefined: the URL has one host. */
  constructor(find?: () => Promise<SocketTarget>) {
    this.#find = find;
  }

  get isRefusing(): boolean {
    return this.#refusedAs !== undefined;
  }

  /** For the driver, which sets its listeners in the same turn of the event loop. */
  make(target: SocketTarget): Duplex | Promise<Duplex> {
    return this.#find === undefined ? this.#make(target) : this.#makeFound(this.#find);
  }

  async #makeFound(find: () => Promise<SocketTarget>): Promise<Duplex> {
    this.#finding ??= find().finally(() => (this.#finding = undefined));
    try {
      return this.#make(await this.#finding);
    } catch (error) {
      return refused(error);
    }
  }

  #make(target: SocketTarget): Duplex {
    if (this.#refusedAs !== undefined) {
      return refused(Object.assign(new Error("the pool was left"), { code: this.#refusedAs }));
    }
    for (const socket of this.#open) if (socket.closed) this.#open.delete(socket);
    const socket = connectTo(target);
    this.#open.add(socket);
    return socket;
  }

  /** From now on connections fail, with this code. */
  refuse(code: string): void {
    this.#refusedAs ??= code;
  }

  /** Resolves when no socket is open. */
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
  readonly #closing = new Set<Promise<void>>();

  /** `connect` gets a callback for the loss of a connection of the pool. */
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
  }

  /** Once per pool: a loss fails many statements, and the first one retires the pool. */
  retire(pool: Pool): void {
    if (pool !== this.#current || !pool.hasWorked) return;
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
      .catch(() => undefined) // The callers of the statements have their errors already.
      .then(() => pool.sockets.destroy())
      .finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}

/**
 * The driver sees a failed connection: it fails the statement and continues with the next one. The
 * connection fails with its first write: one that fails before never writes again (see above).
 */
function refused(cause: unknown): Duplex {
  const error = cause instanceof Error ? cause : new Error("no connection", { cause });
  return new Duplex({
    read: () => undefined,
    write: (_chunk, _encoding, done) => done(error),
  });
}
