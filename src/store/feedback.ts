/** Finds and counts the feedback in a session, by the keys of its rows. */
import { hash } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { readRow } from "./pages.ts";
import { FEEDBACK_KEY } from "./rows.ts";
import { sessionEvents } from "./schema.ts";

/** The digits of a number in a key: keys of one length sort as their numbers do. */
const DIGITS = 10;

/** Hexadecimal digits of a part of a key. */
const PART = 32;
/** The keys of one person begin with this number of characters, and those on one message. */
const PERSON_CHARS = "feedbackp".length + PART;
const PAIR_CHARS = PERSON_CHARS + "m".length + PART;

/** The beginning of the keys of one person's feedback on one message (FEEDBACK_KEY). */
export function feedbackPrefix(of: { readonly by: string; readonly messageId: string }): string {
  return prefixOf(
    hash("sha256", of.by).slice(0, PART),
    hash("sha256", of.messageId).slice(0, PART),
  );
}

function prefixOf(person: string, message: string): string {
  return `feedbackp${person}m${message}n`;
}

/** A key has letters and digits only, which sort in one way in every collation. */
export function feedbackKey(prefix: string, number: number): string {
  return `${prefix}${String(number).padStart(DIGITS, "0")}`;
}

export type FeedbackStore = ReturnType<typeof createFeedbackStore>;

export function createFeedbackStore(database: Database) {
  return {
    /** Undefined: none. */
    async newest(sessionId: string, prefix: string) {
      const [row] = await database.run(newestStatement(sessionId, prefix));
      if (row === undefined) return undefined;
      return {
        /** From 1. */
        number: Number(String(row["key"]).slice(prefix.length)),
        seq: BigInt(String(row["seq"])),
        /** The digest under its key. */
        digest: Buffer.from(String(row["digest"]), "hex"),
      };
    },
    /** Numbers of messages; each counts once for each person who has given feedback on it. */
    async counts(sessionId: string, prefix: string) {
      const [row] = await database.run(countsStatement(sessionId, prefix));
      return { ofPerson: Number(row?.["of_person"]), ofSession: Number(row?.["of_session"]) };
    },
    /** Undefined: it was erased meanwhile. */
    read: (sessionId: string, seq: bigint) =>
      readRow(database, { stream: "events", sessionId, seq }),
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

/** Exported for the plan test. */
export function countsStatement(sessionId: string, prefix: string): SQL {
  const [low, high] = ["0".repeat(PART), "f".repeat(PART)];
  const first = feedbackKey(prefixOf(low, low), 0);
  const last = `${prefixOf(high, high)}${"9".repeat(DIGITS)}`;
  return sql`
    select count(*) as of_session,
      count(*) filter (where left(pair, ${PERSON_CHARS}::int) = ${prefix.slice(0, PERSON_CHARS)}::text) as of_person
    from (
      select distinct left(idempotency_key, ${PAIR_CHARS}::int) as pair from ${sessionEvents}
      where session_id = ${sessionId} and idempotency_key >= ${first} and idempotency_key <= ${last}
        and idempotency_key ~ ${FEEDBACK_KEY}::text
    ) given`;
}
