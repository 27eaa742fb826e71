/** The keys of session tokens: read together, added one by one, removed by their ids. */
import { inArray, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { tokenKeys } from "./schema.ts";

/** Instances that make keys at the same time, and older versions, leave more than two. */
const KEYS_MAX = 1_000;

/** By the database's clock. A key of the future is old: one of the two clocks was wrong. */
const AGE_MS = sql`abs(extract(epoch from clock_timestamp() - ${tokenKeys.createdAt})) * 1000`;

export function createTokenKeyStore(database: Database) {
  return {
    /** Two keys of one time have the same order on every instance. */
    readKeys: () =>
      database.query((drizzle) =>
        drizzle
          .select({
            id: tokenKeys.id,
            privateJwk: tokenKeys.privateJwk,
            ageMs: sql<number>`${AGE_MS}`.mapWith(Number).as("age_ms"),
          })
          .from(tokenKeys)
          .orderBy(sql`age_ms`, tokenKeys.id)
          .limit(KEYS_MAX),
      ),
    async addKey(key: Omit<typeof tokenKeys.$inferSelect, "createdAt">) {
      const createdAt = sql`clock_timestamp()`;
      await database.query((drizzle) => drizzle.insert(tokenKeys).values({ ...key, createdAt }));
    },
    async removeKeys(ids: readonly string[]) {
      await database.query((drizzle) =>
        drizzle.delete(tokenKeys).where(inArray(tokenKeys.id, [...ids])),
      );
    },
  };
}
