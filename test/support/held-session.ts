/** A locked session: an idle transaction holds the lock of its row. */
import type postgres from "postgres";

/** Locked until `release`, and at most for its scope, so that a failed test unlocks it. */
export interface HeldSession extends AsyncDisposable {
  release(): Promise<void>;
}

/** Resolves when the row is locked. Uses its own connection. */
export async function holdSession(sql: postgres.Sql, sessionId: string): Promise<HeldSession> {
  const held = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  const holding = sql.begin(async (silent) => {
    const rows = await silent`select 1 from sessions where id = ${sessionId} for update`;
    if (rows.length !== 1) throw new Error(`there is no session ${sessionId}`);
    held.resolve();
    await over.promise;
  });
  await Promise.race([held.promise, holding]);
  const ended = holding.catch(() => undefined); // The server may go first.
  const release = async (): Promise<void> => {
    over.resolve();
    await ended;
  };
  return { release, [Symbol.asyncDispose]: release };
}

/** The number of statements that wait for a lock in this database. */
export async function waitingForLocks(sql: postgres.Sql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity
    where datname = current_database() and application_name = 'session-ledger'
      and wait_event_type = 'Lock'`;
  return row?.count ?? 0;
}
