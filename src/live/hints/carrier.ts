import type { Database } from "../../store/database.ts";
import { listen, LISTEN_LIMITS, type ListenLimits, notify } from "../../store/listen.ts";
import { once } from "node:events";
import { connect as dial } from "node:net";
import type { NatsConnection } from "@nats-io/transport-node";

/**
 * Carries announcements between instances. Announcements are hints and may be lost; the poll finds
 * what a lost one would have told. kept-line.ts keeps a line open, exchange.ts uses it.
 */
export interface Carrier {
  /** The name in logs and metrics. */
  readonly name: "postgres" | "nats";
  /**
   * Opens a line that receives announcements, perhaps also those of this instance. Rejects when no
   * line opens within the carrier's own limit, and soon after the abort of `signal`.
   */
  open(received: (text: string) => void, signal: AbortSignal): Promise<Line>;
  /** Sends to all other instances; resolves when this process has handed the text over. */
  send(text: string): Promise<void>;
}

export interface Line {
  /** Resolves with the reason once the line receives nothing any more, also after `close`. */
  readonly lost: Promise<unknown>;
  /** Idempotent; resolves when every resource of the line is released. */
  close(): Promise<void>;
}

/**
 * Announcements by PostgreSQL: NOTIFY over the pool, LISTEN over a connection of its own. All
 * instances on one database use one channel.
 */

const CHANNEL = "session_ledger";

interface PostgresWayOptions {
  readonly database: Database;
  /**
   * The server for LISTEN: the same database, without a pooler in between. Read again for every
   * connection.
   */
  readonly url: () => string;
  /**
   * DATABASE_SCHEMA: instances on another schema of the database must not hear of these sessions.
   */
  readonly schema?: string | undefined;
}

export function createPostgresCarrier(
  { database, url, schema }: PostgresWayOptions,
  limits: ListenLimits = LISTEN_LIMITS,
): Carrier {
  const channel = schema === undefined ? CHANNEL : `${CHANNEL}_${schema}`;
  const send = (payload: string): Promise<void> => notify(database, { channel, payload });
  return {
    name: "postgres",
    send,
    open: async (received, signal) =>
      listen({ url: url(), channel, received, notify: send, signal }, limits),
  };
}

/**
 * Announcements by NATS core: every instance publishes to one subject and subscribes to it.
 *
 * A lost connection is given up, and kept-line.ts opens another. The client's own reconnect stays
 * off for four reasons. It cannot be stopped before its first success. It ends without our request
 * on some refusals. It does not subscribe again after a denied subscription. It accepts messages
 * during an outage and drops them at its next try.
 *
 * @nats-io/transport-node 3.4.0 leaves the socket of a dial that timed out open: `dial` in
 * protocol.js closes the transport, and `_closed` in node_transport.js does nothing for one that
 * was never connected. When a network drops packets silently, each try would leak one socket. So we
 * first open a socket of our own and wait for the greeting, which a NATS server always sends first.
 */

export interface NatsServer {
  readonly url: string;
  readonly subject: string;
}

interface NatsLimits {
  /** The limit of each step of connecting: the greeting, the connection, the subscription. */
  readonly openLimitMs: number;
  /** The connection is given up when a ping is not answered before the next ping is due. */
  readonly pingIntervalMs: number;
}

/** Starting points, not measured against others. A silent loss is found after at most 4 s. */
const NATS_LIMITS: NatsLimits = { openLimitMs: 2_000, pingIntervalMs: 2_000 };

export function createNatsCarrier(server: NatsServer, limits: NatsLimits = NATS_LIMITS): Carrier {
  let current: NatsLine | undefined;
  return {
    name: "nats",
    async open(received, signal) {
      const line = await openLine({ server, limits, received }, signal);
      current = line;
      return line;
    },
    async send(text) {
      if (current === undefined) throw new Error("there was no connection to NATS yet");
      await current.send(text);
    },
  };
}

interface Opening {
  readonly server: NatsServer;
  readonly limits: NatsLimits;
  readonly received: (text: string) => void;
}

async function openLine(opening: Opening, signal: AbortSignal): Promise<NatsLine> {
  const { openLimitMs, pingIntervalMs } = opening.limits;
  const { protocol, hostname, port, username, password } = new URL(opening.server.url);
  const address = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || NATS_PORT) };
  await greeting(address, { limitMs: openLimitMs, signal });
  // The steps from here on ignore an abort; each step has its limit, and the line is closed
  // afterwards. The client is loaded here, because most services run without NATS.
  const { connect } = await import("@nats-io/transport-node");
  const connection = await connect({
    servers: `${hostname}:${address.port}`,
    ...credentials(decodeURIComponent(username), decodeURIComponent(password)),
    ...(protocol === "tls:" ? { tls: {} } : {}),
    name: "session-ledger",
    noEcho: true,
    reconnect: false,
    timeout: openLimitMs,
    pingInterval: pingIntervalMs,
    maxPingOut: 1,
  });
  const line = new NatsLine(connection, opening);
  try {
    await line.confirm(openLimitMs);
    return line;
  } catch (error) {
    await line.close();
    throw error;
  }
}

class NatsLine implements Line {
  readonly lost: Promise<unknown>;
  readonly #connection: NatsConnection;
  readonly #subject: string;
  #refusal: Error | undefined;
  /** Fails the pending flush: the client forgets the flushes of a lost connection. */
  #interrupt: ((cause: unknown) => void) | undefined;

  constructor(connection: NatsConnection, { server, received }: Opening) {
    this.#connection = connection;
    this.#subject = server.subject;
    this.lost = this.#end();
    connection.subscribe(server.subject, {
      callback: (refusal, message) => {
        if (refusal === null) return received(message.string());
        this.#refusal = refusal;
        void this.close();
      },
    });
  }

  /** Resolves when the server has received the subscription and has not refused it. */
  async confirm(limitMs: number): Promise<void> {
    const timer = setTimeout(() => void this.close(), limitMs);
    try {
      await this.#flush();
    } finally {
      clearTimeout(timer);
    }
    // A refusal arrives before the answer to the flush.
    if (this.#refusal !== undefined) throw this.#refusal;
  }

  async send(text: string): Promise<void> {
    this.#connection.publish(this.#subject, text);
    await this.#flush();
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #end(): Promise<unknown> {
    const cause = await this.#connection.closed();
    const reason = this.#refusal ?? cause ?? new Error("the connection was closed");
    this.#interrupt?.(reason);
    return reason;
  }

  async #flush(): Promise<void> {
    const { promise: failed, reject } = Promise.withResolvers<never>();
    this.#interrupt = reject;
    if (this.#connection.isClosed()) throw this.#refusal ?? new Error("there is no connection");
    await Promise.race([this.#connection.flush(), failed]);
  }
}

const NATS_PORT = 4_222;

function credentials(
  user: string,
  pass: string,
): { readonly user: string; readonly pass: string } | { readonly token: string } | undefined {
  if (user === "") return undefined;
  return pass === "" ? { token: user } : { user, pass };
}

/** Resolves when the server has sent its first bytes. */
async function greeting(
  address: { readonly host: string; readonly port: number },
  { limitMs, signal }: { readonly limitMs: number; readonly signal: AbortSignal },
): Promise<void> {
  const socket = dial(address);
  try {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
    await once(socket, "data", { signal: limit });
  } finally {
    socket.destroy();
  }
}
