import { createHash } from "node:crypto";
import type { Database } from "../../store/database.ts";
import {
  listen,
  LISTEN_LIMITS,
  type ListenerConnection,
  type ListenLimits,
  notify,
} from "../../store/listen.ts";

/**
 * Carries texts between instances by topics: NOTIFY over the pool, LISTEN over its own connection. Texts may
 * be lost; the poll finds the rest.
 *
 * Topics are the numbers of shards, `peers` for all instances, and the name of an instance for that one.
 */
export interface Transport {
  /**
   * Opens a connection that receives the texts of these topics, also own ones. Rejects if none opens within
   * a limit, and soon after the abort of `signal`.
   */
  open(receiver: Receiver, signal: AbortSignal): Promise<ListenerConnection>;
  /** Resolves when PostgreSQL has the texts. */
  send(messages: readonly Message[]): Promise<void>;
}

export interface Receiver {
  readonly topics: readonly string[];
  readonly onMessage: (text: string) => void;
}

export interface Message {
  readonly topic: string;
  readonly text: string;
}

export const PEERS_TOPIC = "peers";

interface TransportOptions {
  readonly database: Database;
  /** The server for LISTEN, without a pooler in between; read for every connection. */
  readonly url: () => string;
  /** DATABASE_SCHEMA: instances on another schema must not get these texts. */
  readonly schema?: string | undefined;
  /** The topic of this instance, which also has its heartbeats. */
  readonly instance: string;
}

export function createTransport(
  { database, url, schema, instance }: TransportOptions,
  limits: ListenLimits = LISTEN_LIMITS,
): Transport {
  const channelOf = (topic: string): string => channelName(topic, schema);
  const send = (messages: readonly Message[]): Promise<void> =>
    notify(
      database,
      messages.map(({ topic, text }) => ({ channel: channelOf(topic), payload: text })),
    );
  const beat = (text: string): Promise<void> => send([{ topic: instance, text }]);
  return {
    send,
    open: async ({ topics, onMessage: received }, signal) => {
      const all = [...topics, PEERS_TOPIC, instance];
      return listen({ url: url(), channelOf, topics: all, received, notify: beat, signal }, limits);
    },
  };
}

/** At most 63 bytes, as PostgreSQL allows; exported for its test. */
export function channelName(topic: string, schema: string | undefined): string {
  const ledger =
    schema === undefined
      ? "session_ledger"
      : `session_ledger_${createHash("sha256").update(schema).digest("hex").slice(0, 8)}`;
  return `${ledger}_${topic.replaceAll("-", "")}`;
}
