/**
 * One connection that LISTENs, from its opening to its loss. After a loss the caller opens another
 * one.
 *
 *   opening ── LISTEN answered, first heartbeat received ──► listening ── any of these ──► lost
 *      └───────────── refused, silent, aborted ──────────────────────────────────────────▲
 *
 * A connection is lost when either side closes it, or when a heartbeat does not arrive in time. A
 * heartbeat is a NOTIFY to this instance, sent by the pool and received here, so it takes the same
 * way as a notification of another instance. A heartbeat finds a dropped network and a dead peer.
 * It also finds failures that a query on this connection would miss: a pooler that answers LISTEN
 * and delivers nothing, and a URL of another database. A heartbeat must not be sent over this
 * connection: a pooler that lends one server connection for both would return the heartbeat, and no
 * other notification.
 *
 * The driver's own `listen` reconnects automatically, with the defect that pools.ts describes. Here
 * every connection has its own client, and a client gets one socket, which this file makes. So the
 * client never reconnects. At the end the socket is destroyed, because the driver's goodbye over a
 * dead network would leave it open as long as the kernel retries.
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import postgres from "postgres";
import { settingRefused } from "@session-ledger/base/errors";
import { within } from "@session-ledger/base/timers";
import { urlsOfHosts } from "../base/postgres-hosts.ts";
import { connectTo, type SocketTarget } from "./pools.ts";
import { findPrimary } from "./primary.ts";
import type { Database } from "./database.ts";

export interface ListenOptions {
  readonly url: string;
  readonly channelOf: (topic: string) => string;
  /** Those of the beginning. */
  readonly topics: readonly string[];
  readonly received: (payload: string) => void;
  /** Sends to one of these topics, which no other instance has, over another connection. */
  readonly notify: (payload: string) => Promise<void>;
  /** An abort counts as a loss. */
  readonly signal: AbortSignal;
}

/** Starting points, not measured against others. A silent loss is found after at most 5 s. */
export const LISTEN_LIMITS = {
  /** The limit for the connection and the answer to LISTEN. */
  openLimitMs: 5_000,
  beatIntervalMs: 2_000,
  /** From the sending of a heartbeat to its arrival. */
  beatLimitMs: 3_000,
  /** The limit for the goodbye to a server that answers. */
  closeLimitMs: 1_000,
};

export type ListenLimits = Readonly<typeof LISTEN_LIMITS>;

export interface ListenerConnection {
  /** Resolves with the reason once nothing is received any more, also after `close`. */
  readonly lost: Promise<unknown>;
  /** Rejects when the connection is lost. */
  subscribe(topics: readonly string[]): Promise<void>;
  unsubscribe(topics: readonly string[]): Promise<void>;
  /** Idempotent; resolves when the connection is gone. */
  close(): Promise<void>;
}

const LISTEN_POOLED = settingRefused(
  "LISTEN_DATABASE_URL",
  "a pooler delivers no notifications, expected the URL of the server itself, or off",
);

/** Resolves when notifications certainly arrive; a pooler that delivers none is INVALID_ARGUMENT. */
export async function listen(
  options: ListenOptions,
  limits: ListenLimits,
): Promise<ListenerConnection> {
  options.signal.throwIfAborted();
  const connection = new ListenConnection(options, limits);
  try {
    await connection.open();
    return connection;
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** Payloads with this prefix are for this instance alone. */
const BEAT = "beat ";

class ListenConnection implements ListenerConnection {
  readonly lost: Promise<unknown>;
  readonly #options: ListenOptions;
  readonly #limits: ListenLimits;
  readonly #client: postgres.Sql;
  readonly #urls: readonly string[];
  readonly #beatText = `${BEAT}${randomUUID()}`;
  readonly #resolveLost: (cause: unknown) => void;
  #socket: Socket | undefined;
  readonly #losing = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #onHeartbeat: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: ListenOptions, limits: ListenLimits) {
    this.#options = options;
    this.#limits = limits;
    ({ promise: this.lost, resolve: this.#resolveLost } = Promise.withResolvers<unknown>());
    // The driver documents `onnotify` and `socket`, but its types do not have them.
    const driverOptions = {
      max: 1,
      connect_timeout: Math.ceil(limits.openLimitMs / 1_000),
      idle_timeout: undefined,
      max_lifetime: null,
      fetch_types: false,
      onnotice: () => undefined,
      onnotify: this.#received.bind(this),
      onclose: () => this.#fail(new Error("the connection was closed")),
      socket: (target: SocketTarget) => this.#connect(target),
      connection: { application_name: "session-ledger-listen" },
    };
    this.#urls = urlsOfHosts(options.url);
    this.#client = postgres(this.#urls[0] ?? "", driverOptions);
    options.signal.addEventListener("abort", this.#abort, { once: true });
  }

  async open(): Promise<void> {
    await this.subscribe(this.#options.topics);
    try {
      await this.#beat();
    } catch (error) {
      throw (await this.#isPooled()) ? LISTEN_POOLED : error;
    }
    this.#beatLater();
  }

  subscribe(topics: readonly string[]): Promise<void> {
    return this.#run("listen", topics);
  }

  unsubscribe(topics: readonly string[]): Promise<void> {
    return this.#run("unlisten", topics);
  }

  async #run(command: "listen" | "unlisten", topics: readonly string[]): Promise<void> {
    const { channelOf } = this.#options;
    const statements = topics.map((topic) => `${command} ${channelOf(topic)}`);
    const answer = this.#client.unsafe(statements.join(";"));
    const limit = { limitMs: this.#limits.openLimitMs };
    await this.#inTime(`${command.toUpperCase()} was not answered`, limit, answer);
  }

  /** The cancel key of a pooler names another process than the one that answers. */
  async #isPooled(): Promise<boolean> {
    const asked = this.#client.unsafe<{ pid: number }[]>("select pg_backend_pid() as pid");
    const answer = this.#inTime("no answer", { limitMs: this.#limits.openLimitMs }, asked);
    return answer.then(
      (rows) => rows[0]?.pid !== rows.state.pid,
      () => false,
    );
  }

  close(): Promise<void> {
    const isHealthy = !this.#losing.signal.aborted;
    this.#fail(new Error("the connection was given up"));
    this.#closing ??= this.#end(isHealthy ? this.#limits.closeLimitMs : 0);
    return this.#closing;
  }

  readonly #abort = (): void => this.#fail(this.#options.signal.reason);

  #received(_channel: string, payload: string): void {
    if (this.#losing.signal.aborted) return;
    if (payload === this.#beatText) this.#onHeartbeat?.();
    else if (!payload.startsWith(BEAT)) this.#options.received(payload);
  }

  #beatLater(): void {
    this.#timer = setTimeout(() => {
      this.#beat().then(
        () => this.#beatLater(),
        (error: unknown) => this.#fail(error),
      );
    }, this.#limits.beatIntervalMs);
  }

  async #beat(): Promise<void> {
    const { promise: received, resolve } = Promise.withResolvers<void>();
    this.#onHeartbeat = resolve;
    const sent = this.#options.notify(this.#beatText);
    // The arrival is enough, even without an answer to the NOTIFY.
    const beat = Promise.race([received, sent.then(() => received)]);
    await this.#inTime("a heartbeat was not heard", { limitMs: this.#limits.beatLimitMs }, beat);
  }

  #inTime<T>(
    otherwise: string,
    { limitMs }: { readonly limitMs: number },
    answer: PromiseLike<T>,
  ): Promise<T> {
    const message = `${otherwise} within ${limitMs} ms`;
    const late = (): Promise<T> => Promise.reject(new Error(message));
    return within(answer, { limitMs, onTimeout: late, signal: this.#losing.signal });
  }

  #fail(cause: unknown): void {
    if (this.#losing.signal.aborted) return;
    this.#losing.abort(cause);
    this.#options.signal.removeEventListener("abort", this.#abort);
    clearTimeout(this.#timer);
    this.#resolveLost(cause);
  }

  async #end(goodbyeLimitMs: number): Promise<void> {
    const goodbye = this.#client.end({ timeout: goodbyeLimitMs / 1_000 });
    await goodbye.catch(() => undefined); // No caller waits for the answer any more.
    this.#socket?.destroy();
  }

  async #connect(one: SocketTarget): Promise<Socket> {
    const target = this.#urls.length === 1 ? one : (await findPrimary(this.#urls)).target;
    if (this.#losing.signal.aborted || this.#socket !== undefined)
      throw new Error("the connection was closed");
    const socket = connectTo(target);
    this.#socket = socket;
    socket.on("error", () => undefined); // The driver also gets the error, as long as it listens.
    await once(socket, "connect");
    return socket;
  }
}

/**
 * Notifies the listeners of channels. A separate statement on the pool, and never part of the
 * transaction that stores rows: docs/decisions/005-no-notify-in-ingest.md. PostgreSQL refuses a
 * payload of 8,000 bytes. No channel and no payload may have a line break.
 */
export async function notify(
  database: Database,
  notifications: readonly { readonly channel: string; readonly payload: string }[],
): Promise<void> {
  const channels = notifications.map(({ channel }) => channel).join("\n");
  const payloads = notifications.map(({ payload }) => payload).join("\n");
  await database.run({ text: NOTIFY_TEXT, values: [channels, payloads] });
}

const NOTIFY_TEXT = `select pg_notify(channel, payload)
  from unnest(string_to_array($1, chr(10)), string_to_array($2, chr(10))) as sent(channel, payload)`;
