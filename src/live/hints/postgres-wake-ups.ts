/**
 * Announcements by PostgreSQL: NOTIFY over the pool, LISTEN over a connection of its own. All
 * instances on one database use one channel.
 */
import type { Database } from "../../store/database.ts";
import { LISTEN_LIMITS, type ListenLimits, listen } from "../../store/listen.ts";
import { notify } from "../../store/notify.ts";
import type { Carrier } from "./carrier.ts";

const CHANNEL = "session_ledger";

export interface PostgresWayOptions {
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
