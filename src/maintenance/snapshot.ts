/** One snapshot of a ledger, for commands that read many sessions. */
import { type Database, type SQL, sql, type Transaction } from "../store/database.ts";
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
  const from =
    chosen === undefined ? sql`sessions` : sql`(select distinct id from ${listed(chosen)}) c`;
  await transaction.execute(
    sql`declare ids no scroll cursor for select id from ${from} order by id collate "C"`,
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
  const [unknown] = await transaction.execute(sql`
    select id from ${listed(chosen)} where not exists (select from sessions s where s.id = wanted.id)
    limit 1`);
  if (unknown !== undefined) throw sessionNotFound(String(unknown["id"]));
}

function listed(ids: readonly string[]): SQL {
  return sql`json_array_elements_text(${JSON.stringify(ids)}::text::json) as wanted(id)`;
}
