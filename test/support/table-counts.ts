/** The effect of a statement on a table, as PostgreSQL counts it: the real plan, not an explained one. */
import type postgres from "postgres";

export interface TableCounts {
  readonly seqScans: number;
  readonly rowsByIndex: number;
  readonly updates: number;
  /** Updates that stayed in their page and touched no index. */
  readonly hotUpdates: number;
}

export async function countsOf(
  client: postgres.Sql,
  table: string,
  statement: (on: postgres.TransactionSql) => Promise<unknown>,
): Promise<TableCounts> {
  return client.begin(async (transaction) => {
    // The view includes counts of earlier transactions that the connection has not reported yet.
    const before = await read(transaction, table);
    await statement(transaction);
    const after = await read(transaction, table);
    return {
      seqScans: after.seqScans - before.seqScans,
      rowsByIndex: after.rowsByIndex - before.rowsByIndex,
      updates: after.updates - before.updates,
      hotUpdates: after.hotUpdates - before.hotUpdates,
    };
  });
}

async function read(on: postgres.TransactionSql, table: string): Promise<TableCounts> {
  const [counts] = await on<TableCounts[]>`
    select seq_scan::int as "seqScans", idx_tup_fetch::int as "rowsByIndex",
      n_tup_upd::int as updates, n_tup_hot_upd::int as "hotUpdates"
    from pg_stat_xact_user_tables where relname = ${table}`;
  if (counts === undefined) throw new Error(`there is no table ${table}`);
  return counts;
}
