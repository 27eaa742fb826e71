/**
 * Distributes the tables among the nodes of a Citus cluster (docs/scale.md): rows of a session are on the node
 * of the session, so one node answers each statement that names it. Other tables stay on the coordinator.
 */
import { getTableColumns, getTableName, sql } from "drizzle-orm";
import { settingRefused } from "@session-ledger/base/errors";
import { anyOf } from "./columns.ts";
import type { Transaction } from "./database.ts";
import * as tables from "./schema.ts";

export type Engine = "postgres" | "citus";

/** The table of sessions first: the others are placed beside it. */
const DISTRIBUTED = [
  { name: getTableName(tables.sessions), column: "id" },
  ...Object.values(tables)
    .filter((table) => "sessionId" in getTableColumns(table))
    .map((table) => ({ name: getTableName(table), column: "session_id" })),
];

/**
 * Distributes tables of the current schema that are not distributed; without the extension nothing is done.
 * Rejects if the engine is `postgres` and a table is distributed, because one call would have sessions of many
 * nodes.
 */
export async function distribute(transaction: Transaction, engine: Engine): Promise<void> {
  if (!(await hasCitus(transaction))) return;
  const rows = await transaction.execute(sql`
    select relname from pg_class join pg_dist_partition on logicalrelid = pg_class.oid and partmethod = 'h'
    where relnamespace = current_schema()::regnamespace
      and relname = ${anyOf(DISTRIBUTED.map(({ name }) => name))}`);
  if (engine === "postgres") {
    if (rows.length > 0)
      throw settingRefused("ENGINE", "the tables are distributed by Citus, expected citus");
    return;
  }
  const distributed = new Set(rows.map(({ relname }) => relname));
  const [{ name: first } = { name: "" }] = DISTRIBUTED;
  for (const { name, column } of DISTRIBUTED) {
    if (distributed.has(name)) continue;
    const beside = name === first ? "default" : first;
    await transaction.execute(
      sql`select create_distributed_table(${name}::text::regclass, ${column}::text, colocate_with => ${beside}::text)`,
    );
  }
}

/**
 * Rejects if a writer of the ledger could run on a worker: the horizon of feeds (live/horizon.ts) reads the locks
 * of the coordinator, and would pass rows of that writer.
 */
export async function refuseWorkers(transaction: Transaction, engine: Engine): Promise<void> {
  if (engine === "postgres" || !(await hasCitus(transaction))) return;
  const [writers] = await transaction.execute(sql`
    select citus_is_coordinator() as coordinator,
      (select string_agg(proname, ', ' order by proname) from pg_dist_object
        join pg_proc on classid = 'pg_proc'::regclass and objid = pg_proc.oid
        where distribution_argument_index is not null and proname like 'ledger\\_%') as delegated`);
  if (writers?.["coordinator"] !== true)
    throw settingRefused(
      "DATABASE_URL",
      "the server is a worker of Citus, expected the coordinator",
    );
  const { delegated } = writers;
  if (typeof delegated === "string")
    throw settingRefused(
      "ENGINE",
      `workers run ${delegated}, expected no distributed function of the ledger`,
    );
}

async function hasCitus(transaction: Transaction): Promise<boolean> {
  const [citus] = await transaction.execute(
    sql`select to_regclass('pg_dist_partition') is not null as found`,
  );
  return citus?.["found"] === true;
}
