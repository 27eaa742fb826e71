import { sql } from "drizzle-orm";
import type { Database } from "./database.ts";

/**
 * Notifies the listeners of a channel. A statement of its own on the pool, and never part of the
 * transaction that stores rows: docs/decisions/005-no-notify-in-ingest.md. PostgreSQL refuses a
 * payload of 8,000 bytes.
 */
export async function notify(
  database: Database,
  notification: { readonly channel: string; readonly payload: string },
): Promise<void> {
  const { channel, payload } = notification;
  await database.run(sql`select pg_notify(${channel}, ${payload})`);
}
