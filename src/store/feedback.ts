/** Finds the newest feedback of one person on one message, by the key of its row. */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { readKept } from "./pages.ts";
import { type EventRow } from "./rows.ts";
import { sessionEvents } from "./schema.ts";

/** The digits of a number in a key: keys of one length sort as their numbers do. */
const DIGITS = 10;

export interface NewestFeedback {
  /** From 1. */
  readonly number: number;
  readonly seq: bigint;
  /** The digest under its key. */
  readonly digest: Uint8Array;
}

/** `prefix` has letters and digits only, which sort in one way in every collation. */
export function feedbackKey(prefix: string, number: number): string {
  return `${prefix}${String(number).padStart(DIGITS, "0")}`;
}

export interface FeedbackStore {
  /** Undefined: there is none. */
  newest(sessionId: string, prefix: string): Promise<NewestFeedback | undefined>;
  /** Undefined: it was erased meanwhile. */
  read(sessionId: string, seq: bigint): Promise<EventRow | undefined>;
}

export function createFeedbackStore(database: Database): FeedbackStore {
  return {
    async newest(sessionId, prefix) {
      const [row] = await database.run(newestStatement(sessionId, prefix));
      if (row === undefined) return undefined;
      return {
        number: Number(String(row["key"]).slice(prefix.length)),
        seq: BigInt(String(row["seq"])),
        digest: Buffer.from(String(row["digest"]), "hex"),
      };
    },
    async read(sessionId, seq) {
      const [row] = await readKept(database, [{ stream: "events", sessionId, seq }]);
      return row?.stream === "events" ? row : undefined;
    },
  };
}

/** Exported for the plan test. A key of a producer may sort between two of these, or be longer. */
export function newestStatement(sessionId: string, prefix: string): SQL {
  return sql`
    select seq, idempotency_key as key, encode(key_digest, 'hex') as digest from ${sessionEvents}
    where session_id = ${sessionId} and idempotency_key >= ${feedbackKey(prefix, 0)}
      and idempotency_key <= ${`${prefix}${"9".repeat(DIGITS)}`}
      and idempotency_key ~ ${`^${prefix}[0-9]{${DIGITS}}$`}
    order by idempotency_key desc limit 1`;
}
