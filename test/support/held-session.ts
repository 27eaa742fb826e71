/** A session that somebody holds: a transaction that has locked its row, and says nothing more. */
import type postgres from "postgres";

/** Resolves when the row is locked; what it resolves with lets go of it. Takes a connection of its own. */
export async function holdSession(
  sql: postgres.Sql,
  sessionId: string,
): Promise<() => Promise<void>> {
  const held = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const holding = sql.begin(async (silent) => {
    const rows = await silent`select 1 from sessions where id = ${sessionId} for update`;
    if (rows.length !== 1) throw new Error(`there is no session ${sessionId}`);
    held.resolve();
    await release.promise;
  });
  await Promise.race([held.promise, holding]);
  const ended = holding.catch(() => undefined); // The server may go first.
  return async () => {
    release.resolve();
    await ended;
  };
}

/** How many statements of services wait for a lock. */
export async function waitingForLocks(sql: postgres.Sql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity
    where application_name = 'session-ledger' and wait_event_type = 'Lock'`;
  return row?.count ?? 0;
}
