import type { Database } from "../../store/database.ts";
import {
  listen,
  LISTEN_LIMITS,
  type ListenerConnection,
  type ListenLimits,
  notify,
} from "../../store/listen.ts";

/**
 * Carries announcements between instances: NOTIFY over the pool, LISTEN over its own connection.
 * Announcements may be lost; the poll finds the rest.
 */
export interface Transport {
  /**
   * Opens a connection that receives announcements, also own ones. Rejects if none opens within a
   * limit, and soon after the abort of `signal`.
   */
  open(onMessage: (text: string) => void, signal: AbortSignal): Promise<ListenerConnection>;
  /** Sends to all instances; resolves when PostgreSQL has the text. */
  send(text: string): Promise<void>;
}

/** All instances on one database use one channel. */
const CHANNEL = "session_ledger";

interface TransportOptions {
  readonly database: Database;
  /** The server for LISTEN, without a pooler in between; read for every connection. */
  readonly url: () => string;
  /** DATABASE_SCHEMA: instances on another schema must not get these announcements. */
  readonly schema?: string | undefined;
}

export function createTransport(
  { database, url, schema }: TransportOptions,
  limits: ListenLimits = LISTEN_LIMITS,
): Transport {
  const channel = schema === undefined ? CHANNEL : `${CHANNEL}_${schema}`;
  const send = (payload: string): Promise<void> => notify(database, { channel, payload });
  return {
    send,
    open: async (received, signal) =>
      listen({ url: url(), channel, received, notify: send, signal }, limits),
  };
}
