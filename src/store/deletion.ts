/** The mark of a deletion, and the hold that prevents it. */
import { and, eq, isNull } from "drizzle-orm";
import { type Database, type Fields, type SQL, sql } from "./database.ts";
import { sessionHeld } from "./failure.ts";
import { sessions } from "./schema.ts";
import { NOW, RECORD, type SessionRecord } from "./sessions.ts";

/** Takes the lock of pushes. False: deleted before, or none. Rejects for a held session. */
export async function deleteSession(database: Database, id: string): Promise<boolean> {
  const marked = await markDeleted(database, { id, unless: sql`deleted_at is not null` });
  return marked !== undefined;
}

/**
 * The heads of the marked session; undefined: none, or `unless` holds for it. One statement, so
 * that no hold is missed between two. The update finds the row that `found` has locked.
 */
export async function markDeleted(
  database: Database,
  { id, unless }: { readonly id: string; readonly unless: SQL },
): Promise<Fields | undefined> {
  const [found] = await database.run(sql`
    with found as materialized (
      select hold from sessions where id = ${id} and (${unless}) is false for no key update
    ), marked as (
      update sessions set deleted_at = least(deleted_at, ${NOW}),
        updated_at = ${NOW}, changed_at = ${NOW}
      from found where id = ${id} and found.hold is null returning message_seq, event_seq
    )
    select found.hold, marked.* from found left join marked on true`);
  const hold = found?.["hold"];
  if (typeof hold === "string") throw sessionHeld(id, hold);
  return found;
}

/**
 * Also of a deleted session; undefined when the session does not exist or is erased. Null ends the
 * hold. Takes the lock of pushes and of erasures, so a hold is in force when this resolves.
 */
export async function holdSession(
  database: Database,
  id: string,
  hold: string | null,
): Promise<SessionRecord | undefined> {
  const [record] = await database.query((drizzle) =>
    drizzle
      .update(sessions)
      .set({ hold, updatedAt: NOW, changedAt: NOW })
      .where(and(eq(sessions.id, id), isNull(sessions.erasedAt)))
      .returning(RECORD),
  );
  return record;
}
