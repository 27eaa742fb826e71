/**
 * Tables of a sharded engine are distributed by `migrate up`. PostgreSQL has no Citus here: a table and functions
 * with the names of those of Citus stand in for them, and note which tables were distributed.
 */
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { migrateDown, migrateUp } from "../../src/store/migrate.ts";
import { checkServer } from "../../src/store/server-check.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";

const FOLDER = join(import.meta.dirname, "../../src/store/migrations");

let ledger: OpenDatabase;
beforeEach(async () => {
  ledger = await openDatabase({ empty: true });
});
afterEach(() => ledger.stop());
afterAll(cleanUp);

const up = (engine: "postgres" | "citus") => migrateUp(ledger.url, { engine });

function standIn(): Promise<unknown> {
  return ledger.sql.unsafe(`
    create table pg_dist_partition (logicalrelid oid, partmethod text, by text, beside text);
    create table pg_dist_object (classid oid, objid oid, distribution_argument_index int);
    create table node as select true as coordinator;
    create function citus_is_coordinator() returns boolean language sql as 'select coordinator from node';
    create function create_distributed_table(name regclass, by text, colocate_with text) returns void
      language sql as $$ insert into pg_dist_partition values (name, 'h', by, colocate_with) $$`);
}

const distributed = () =>
  ledger.sql.unsafe(`
    select logicalrelid::regclass::text as name, by, beside from pg_dist_partition order by name`);

const BESIDE = { by: "session_id", beside: "sessions" };
const ALL = [
  { name: "imported_rows", ...BESIDE },
  { name: "indexed_sessions", ...BESIDE },
  { name: "session_events", ...BESIDE },
  { name: "session_messages", ...BESIDE },
  { name: "session_runs", ...BESIDE },
  { name: "session_texts", ...BESIDE },
  { name: "session_tool_calls", ...BESIDE },
  { name: "sessions", by: "id", beside: "default" },
];

test("migrate up distributes every table with rows of sessions, once", async () => {
  await standIn();
  await up("citus");
  expect(await distributed()).toEqual(ALL);
  await up("citus");
  expect(await distributed()).toEqual(ALL);
});

test("migrate up distributes a ledger that was made before, and a table that is left", async () => {
  await up("postgres");
  await standIn();
  await up("postgres");
  expect(await distributed()).toEqual([]);
  await up("citus");
  await ledger.sql`delete from pg_dist_partition where logicalrelid = 'session_texts'::regclass`;
  await up("citus");
  expect(await distributed()).toEqual(ALL);
});

test("without the extension nothing is distributed", async () => {
  expect((await up("citus")).pending).toEqual([]);
  expect((await up("postgres")).pending).toEqual([]);
});

test("refuses distributed tables with the engine postgres", async () => {
  await standIn();
  await up("citus");
  await expect(up("postgres")).rejects.toThrow(
    "ENGINE: the tables are distributed by Citus, expected citus",
  );
});

test("refuses a worker and delegated functions, because their writers are not seen by feeds", async () => {
  await standIn();
  await ledger.sql`update node set coordinator = false`;
  await expect(up("citus")).rejects.toThrow(
    "DATABASE_URL: the server is a worker of Citus, expected the coordinator",
  );
  await ledger.sql`update node set coordinator = true`;
  await up("citus");
  await ledger.sql`
    insert into pg_dist_object select 'pg_proc'::regclass, 'ledger_append_pushes'::regproc, 0`;
  await expect(up("citus")).rejects.toThrow(
    "ENGINE: workers run ledger_append_pushes, expected no distributed function of the ledger",
  );
});

test("refuses a node that may lose acknowledged rows", async () => {
  const limits = { connectionsMax: 1, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
  const options = { url: () => ledger.url, ...limits, isSharded: true };
  await checkServer(options);
  await ledger.sql.unsafe(`
    create table answers as select 1 as nodeid, true as success, '1 on on f' as result;
    create function run_command_on_all_nodes(command text)
      returns table (nodeid int, success boolean, result text)
      language sql as 'select * from answers'`);
  await checkServer(options);
  await ledger.sql`insert into answers values (2, true, '1 off on f')`;
  const refusal =
    "DATABASE_URL: acknowledged rows may be lost on node 2 of pg_dist_node: synchronous_commit is off, expected on";
  await expect(checkServer(options)).rejects.toThrow(refusal);
  await checkServer({ ...options, isSharded: false });
  await checkServer({ ...options, allowsLoss: true });
  await ledger.sql`update answers set success = false where nodeid = 2`; // It is lost.
  await checkServer(options);
});

test("a step down gives the functions of pushes their earlier text back, and up the later one", async () => {
  const texts = () =>
    ledger.sql<{ text: string }[]>`
      select pg_get_functiondef(oid) as text from pg_proc
      where proname in ('ledger_append_pushes', 'ledger_append_chained_pushes', 'ledger_fix_plans')
      order by proname`.then((rows) => rows.map(({ text }) => text));
  await migrateUp(ledger.url, { folder: await folderBefore("0007_sharded") });
  const before = await texts();
  await up("postgres");
  const later = await texts();
  expect(later.join("").match(/sessions\.active_at <= idle_since/g)).toHaveLength(2);
  let { applied } = await migrateDown(ledger.url);
  while (applied.includes("0007_sharded")) ({ applied } = await migrateDown(ledger.url));
  expect(await texts()).toEqual(before);
  await up("postgres");
  expect(await texts()).toEqual(later);
});

/** The migrations before the named one. */
async function folderBefore(tag: string): Promise<string> {
  const folder = await makeDirectory();
  await cp(FOLDER, folder, { recursive: true });
  const file = join(folder, "meta", "_journal.json");
  const journal: { entries: { tag: string }[] } = JSON.parse(await readFile(file, "utf8"));
  const entries = journal.entries.slice(
    0,
    journal.entries.findIndex((entry) => entry.tag === tag),
  );
  await writeFile(file, JSON.stringify({ ...journal, entries }));
  return folder;
}
