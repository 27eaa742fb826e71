/** The keys of session tokens: read together, added one by one, deleted by age. */
import { and, desc, gt, inArray, lt, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { tokenKeys } from "./schema.ts";
import { isoOf, microsColumn } from "./columns.ts";

export interface TokenKeyRecord {
  readonly id: string;
  readonly privateJwk: string;
  readonly createdAtMicros: bigint;
}

const RECORD = {
  id: tokenKeys.id,
  privateJwk: tokenKeys.privateJwk,
  createdAtMicros: sql<bigint>`${microsColumn(tokenKeys.createdAt)}`.mapWith((value: unknown) =>
    BigInt(String(value)),
  ),
};

/** The newest first; two keys made at once have the same order on every instance. */
export function readTokenKeys(
  database: Database,
  { keysMax }: { readonly keysMax: number },
): Promise<readonly TokenKeyRecord[]> {
  return database.query((drizzle) =>
    drizzle
      .select(RECORD)
      .from(tokenKeys)
      .orderBy(desc(tokenKeys.createdAt), desc(tokenKeys.id))
      .limit(keysMax),
  );
}

export async function addTokenKey(database: Database, key: TokenKeyRecord): Promise<void> {
  const { id, privateJwk, createdAtMicros } = key;
  await database.query((drizzle) =>
    drizzle.insert(tokenKeys).values({ id, privateJwk, createdAt: isoOf(createdAtMicros) }),
  );
}

export async function removeTokenKeysMadeBefore(
  database: Database,
  createdAtMicros: bigint,
): Promise<void> {
  await database.query((drizzle) =>
    drizzle.delete(tokenKeys).where(lt(tokenKeys.createdAt, isoOf(createdAtMicros))),
  );
}

export async function removeTokenKeysOfTheFuture(
  database: Database,
  ids: readonly string[],
): Promise<void> {
  await database.query((drizzle) =>
    drizzle
      .delete(tokenKeys)
      .where(and(inArray(tokenKeys.id, [...ids]), gt(tokenKeys.createdAt, sql`clock_timestamp()`))),
  );
}
