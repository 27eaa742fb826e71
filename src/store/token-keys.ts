/** The keys of session tokens: read together, added one by one, removed by their ids. */
import { inArray, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { tokenKeys } from "./schema.ts";

type TokenKeyRecord = Omit<typeof tokenKeys.$inferSelect, "createdAt">;

/** Instances that make keys at the same time, and older versions, leave more than two. */
const KEYS_MAX = 1_000;

/** By the database's clock. A key of the future is old: one of the two clocks was wrong. */
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
