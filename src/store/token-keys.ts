/** The keys of session tokens: read together, added one by one, removed by their ids. */
import { inArray, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { tokenKeys } from "./schema.ts";

export interface TokenKeyRecord {
  readonly id: string;
  readonly privateJwk: string;
}

/**
 * More than two are in the table after instances made keys at the same time, and after an upgrade from
 * a version that made one each day.
 */
const KEYS_MAX = 1_000;

/**
 * By the clock of the database. A key of the future counts as old: the clock was wrong when it was
 * made, or is wrong now.
 */
const AGE_MS = sql`abs(extract(epoch from clock_timestamp() - ${tokenKeys.createdAt})) * 1000`;

/** The newest first; two keys of one time have the same order on every instance. */
export function readTokenKeys(
  database: Database,
): Promise<readonly (TokenKeyRecord & { readonly ageMs: number })[]> {
  return database.query((drizzle) =>
    drizzle
      .select({
        id: tokenKeys.id,
        privateJwk: tokenKeys.privateJwk,
        ageMs: sql<number>`${AGE_MS}`.mapWith(Number).as("age_ms"),
      })
      .from(tokenKeys)
      .orderBy(sql`age_ms`, tokenKeys.id)
      .limit(KEYS_MAX),
  );
}

export async function addTokenKey(database: Database, key: TokenKeyRecord): Promise<void> {
  const createdAt = sql`clock_timestamp()`;
  await database.query((drizzle) => drizzle.insert(tokenKeys).values({ ...key, createdAt }));
}

export async function removeTokenKeys(database: Database, ids: readonly string[]): Promise<void> {
  await database.query((drizzle) =>
    drizzle.delete(tokenKeys).where(inArray(tokenKeys.id, [...ids])),
  );
}
