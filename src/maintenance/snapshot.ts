/** One snapshot of a ledger, for commands that read many sessions. */
import { type Database, type SQL, sql, type Transaction } from "../store/database.ts";
import { anyOf } from "../store/columns.ts";
import { sessionNotFound } from "../store/failure.ts";

/** All statements of `work` see the same rows, while services run. */
export function inSnapshot<T>(
  database: Database,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  return database.transaction(async (transaction) => {
    await transaction.execute(sql`set transaction isolation level repeatable read, read only`);
    // A reader of the result may take its time.
    await transaction.execute(sql`set local idle_in_transaction_session_timeout = 0`);
    await transaction.execute(sql`set local bytea_output = 'hex'`);
    return work(transaction);
  });
}

/** Ids that one statement reads. */
const IDS_MAX = 1_000;

/** All sessions or the chosen ones, by the bytes of their ids: one order in every database. */
export async function* sessionIds(
  transaction: Transaction,
  chosen: readonly string[] | undefined,
): AsyncGenerator<string, void, undefined> {
  const wanted = chosen === undefined ? sql`true` : isAmong(chosen);
  await transaction.execute(
    sql`declare ids no scroll cursor for select id from sessions where ${wanted} order by id collate "C"`,
  );
  for (;;) {
    const ids = await transaction.execute(sql.raw(`fetch ${IDS_MAX} from ids`));
    for (const { id } of ids) yield String(id);
    if (ids.length < IDS_MAX) return;
  }
}

export async function refuseUnknown(
  transaction: Transaction,
  chosen: readonly string[] | undefined,
): Promise<void> {
  if (chosen === undefined) return;
  const found = await transaction.execute(sql`select id from sessions where ${isAmong(chosen)}`);
  const known = new Set(found.map(({ id }) => id));
  const unknown = chosen.find((id) => !known.has(id));
  if (unknown !== undefined) throw sessionNotFound(unknown);
}

function isAmong(ids: readonly string[]): SQL {
  return sql`id = ${anyOf(ids)}`;
}
