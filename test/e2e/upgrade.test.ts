/**
 * A ledger of the first schema, made by its build, is upgraded while an instance of that build writes:
 * the answers of every call that reads stay the same, also after a step down and up again. A new migration
 * is tested by the first case; the second one shows that the test sees a change of a table and a function.
 */
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import type postgres from "postgres";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { verify, type VerifiedSession } from "../../src/maintenance/verify.ts";
import { append } from "../../src/store/append.ts";
import { createDatabase as openDatabase } from "../../src/store/database.ts";
import { migrateDown, migrateUp, migrationStatus } from "../../src/store/migrate.ts";
import { createDatabase, type TestDatabase } from "../support/database.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import {
  everyAnswer,
  FIXTURE,
  fixtureSql,
  rowsOf,
  schemaOf,
  startOnLedger,
  storeRows,
} from "../support/ledger-fixture.ts";
import { newPush } from "../support/ledger.ts";
import { OldInstance } from "../support/old-instance.ts";

const MIGRATIONS = join(import.meta.dirname, "../../src/store/migrations");
const FIRST = "0000_ledger";

const ROWS = gunzipSync(await readFile(FIXTURE.rows)).toString();
const answersSchema = z.record(z.string(), z.unknown());
const ANSWERS = answersSchema.parse(
  JSON.parse(brotliDecompressSync(await readFile(FIXTURE.answers)).toString()),
);

let created: TestDatabase;
let sql: postgres.Sql;
beforeEach(async () => {
  created = await createDatabase();
  sql = fixtureSql(created.url);
});
afterEach(async () => {
  await sql.end();
  await created.drop();
  await cleanUp();
});

const journalSchema = z.looseObject({ entries: z.array(z.looseObject({ tag: z.string() })) });

/** A copy of the migrations, with other entries in the journal. */
async function folderWith(
  change: (entries: z.infer<typeof journalSchema>["entries"]) => readonly object[],
): Promise<string> {
  const folder = await makeDirectory();
  await cp(MIGRATIONS, folder, { recursive: true });
  const file = join(folder, "meta/_journal.json");
  const journal = journalSchema.parse(JSON.parse(await readFile(file, "utf8")));
  await writeFile(file, JSON.stringify({ ...journal, entries: change(journal.entries) }));
  return folder;
}

/** One more migration: a column, and a function that fills it. */
async function madeUpMigration(): Promise<string> {
  const tag = "9999_made_up";
  const folder = await folderWith((entries) => [...entries, { tag, when: 9_999_999_999_999 }]);
  const write = (name: string, text: string) => writeFile(join(folder, name), text);
  const ledger = await readFile(join(folder, "ledger-0001.sql"), "utf8");
  const counting = ledger.replace(
    "    last_activity_at = recorded,",
    "$&\n    made_up = made_up + 1,",
  );
  await write("ledger-9999.sql", counting);
  await write(
    `${tag}.sql`,
    `ALTER TABLE sessions ADD COLUMN made_up bigint DEFAULT 0 NOT NULL;
--> statement-breakpoint
-- replace ledger-9999.sql`,
  );
  await write(
    `${tag}.down.sql`,
    `-- replace ledger-0001.sql
--> statement-breakpoint
ALTER TABLE sessions DROP COLUMN made_up;`,
  );
  return folder;
}

/** Deletes what the old instance wrote: the fixture does not have it. */
async function forgetWriter(): Promise<void> {
  await sql`delete from sessions where id = ${OldInstance.SESSION}`;
  for (const table of ["session_messages", "session_events", "session_texts", "indexed_sessions"])
    await sql`delete from ${sql(table)} where session_id = ${OldInstance.SESSION}`;
}

/** With one more push, by this version: its rows have a chain, and those of the old instance are no damage. */
async function verified(): Promise<readonly VerifiedSession[]> {
  const limits = { connectionsMax: 1, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
  const database = openDatabase({ url: () => created.url, ...limits });
  await database.start();
  const all: VerifiedSession[] = [];
  try {
    const push = newPush(OldInstance.SESSION);
    await append(database, [push], { createMissing: false, wait: true });
    await verify(database, {
      sessionIds: undefined,
      signal: new AbortController().signal,
      verified: (session) => Promise.resolve(all.push(session) > 0),
    });
  } finally {
    await database.stop();
  }
  return all;
}

test.each([
  ["the newest schema", "true", () => Promise.resolve(MIGRATIONS)],
  ["a schema with one more migration", "made_up > 0", madeUpMigration],
])(
  "a ledger of the first schema reads the same in %s, and after a step down and up",
  async (_name, isMigrated, folderOf) => {
    const folder = await folderOf();
    await migrateUp(created.url, { folder: await folderWith((entries) => entries.slice(0, 1)) });
    await storeRows(sql, ROWS);
    const first = await schemaOf(sql);
    expect(await rowsOf(sql)).toBe(ROWS);

    // Up, and down and up again.
    for (let times = 0; times < 2; times += 1) {
      const old = new OldInstance(created.url);
      await old.next();
      // The service migrates at its start. After one more migration it is an instance of the build before.
      const service = await startOnLedger({ databaseUrl: created.url });
      expect((await migrateUp(created.url, { folder })).pending).toEqual([]);
      await old.next();
      await old.stop();
      const [written] = await sql`
      select message_seq::int as messages, event_seq::int as events, ${sql.unsafe(isMigrated)} as "isMigrated"
      from sessions where id = ${OldInstance.SESSION}`;
      expect(written).toEqual({ messages: old.pushes, events: old.pushes, isMigrated: true });
      const sessions = await verified();
      expect(sessions.filter(({ problems }) => problems.length > 0)).toEqual([]);
      expect(sessions.find(({ sessionId }) => sessionId === OldInstance.SESSION)).toMatchObject({
        messages: old.pushes,
        events: old.pushes + 1,
        uncovered: 2 * old.pushes,
      });
      await forgetWriter();

      // A later version may add members, and changes none.
      expect(await everyAnswer(service, created.url)).toMatchObject(ANSWERS);

      expect(await service.stop()).toBe(0);
      let status = await migrationStatus(created.url, { folder });
      while (status.applied.length > 1) status = await migrateDown(created.url, { folder });
      expect(status.applied).toEqual([FIRST]);
      expect(await schemaOf(sql)).toEqual(first);
      expect(await rowsOf(sql)).toBe(ROWS);
    }
  },
);
