/**
 * Hash partitions of the tables that grow with the rows (docs/operations.md, "Partitions"), for a new database:
 * PostgreSQL cannot divide a table that exists.
 */
import { getTableName, sql } from "drizzle-orm";
import { ServiceError } from "@session-ledger/base/errors";
import type { Transaction } from "./database.ts";
import { sessionEvents, sessionMessages, sessionTexts } from "./schema.ts";

const PARTITIONED = [sessionMessages, sessionEvents, sessionTexts].map(getTableName);

/** The statements of a migration, with as many partitions for each of these tables that it creates. */
export function withPartitions(
  statements: readonly string[],
  partitions: number,
): readonly string[] {
  return statements.flatMap((statement) => {
    const name = PARTITIONED.find((table) => statement.includes(`CREATE TABLE "${table}"`));
    if (name === undefined) return [statement];
    const parts = Array.from(
      { length: partitions },
      (_, at) =>
        `CREATE TABLE "${name}_p${at}" PARTITION OF "${name}" FOR VALUES WITH (MODULUS ${partitions}, REMAINDER ${at})`,
    );
    return [`${statement.trim().replace(/;$/, "")} PARTITION BY HASH ("session_id")`, ...parts];
  });
}

/** Rejects if the tables that exist have another number of partitions. */
export async function refuseOtherPartitions(
  transaction: Transaction,
  partitions: number,
): Promise<void> {
  const [row] = await transaction.execute(sql`
    select count(*)::int as count from pg_inherits where inhparent = to_regclass(${PARTITIONED[0]})`);
  const count = Number(row?.["count"]);
  if (count === partitions) return;
  const found = count === 0 ? "without partitions" : `with ${count} partitions`;
  const message = `--partitions: the tables exist already ${found}, expected a new database: dump this one, and restore it into another`;
  throw new ServiceError("invalid_argument", "INVALID_REQUEST", message);
}
