/** What a copy of the files needs from PostgreSQL: its label, the segments of its log, and a slot. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openBackup, restoreBackup } from "../../src/postgres/backup.ts";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import { copyWhileRunning } from "../../src/store/base-backup.ts";
import { createDatabase, type Database } from "../../src/store/database.ts";
import {
  addRow,
  cleanUp,
  countRows,
  makeDirectory,
  recordingLog,
  withSql,
} from "../support/embedded-fixture.ts";

const { signal } = new AbortController();
const log = recordingLog();

let dataDir: string;
let server: ReturnType<typeof createEmbeddedPostgres>;
let database: Database;

beforeAll(async () => {
  dataDir = await makeDirectory();
  server = createEmbeddedPostgres({ dataDir, log });
  await server.start();
  database = createDatabase({
    url: () => server.url,
    connectionsMax: 1,
    statementTimeoutMs: 60_000,
    lockTimeoutMs: 1_000,
  });
  await database.start();
});

afterAll(async () => {
  await database.stop();
  await server.stop();
  await cleanUp();
});

test("rows that come while the files are copied are in the backup, after any checkpoint", async () => {
  const directory = join(await makeDirectory(), "backup");
  await addRow(server.url);
  const backup = await openBackup(join(dataDir, "postgres"), { directory, signal });
  await copyWhileRunning(database, {
    data: async () => {
      await backup.copyData();
      // The copied table lacks this row, and the copied control file begins after it.
      await addRow(server.url);
      await withSql(server.url, async (sql) => {
        await sql`select pg_switch_wal()`;
        await sql`checkpoint`;
      });
      await backup.copyControl();
    },
    log: backup.copyLog,
  });
  await addRow(server.url);
  const { files } = await backup.complete();
  expect(files).toBeGreaterThan(500);
  const left = await readdir(join(directory, "data"));
  expect(left).toContain("backup_label");
  expect(left).not.toContain("postmaster.pid");

  const restored = await makeDirectory();
  await restoreBackup(directory, { dataDir: restored, log, signal });
  const other = createEmbeddedPostgres({ dataDir: restored, log });
  await other.start();
  expect(await countRows(other.url)).toBe(2);
  await other.stop();
});

test("the log of a copy stays until it is copied, and its slot goes with a failed copy", async () => {
  const slots = () => withSql(server.url, (sql) => sql`select 1 from pg_replication_slots`);
  const segments = async () =>
    (await readdir(join(dataDir, "postgres", "data", "pg_wal"))).filter((name) =>
      name.startsWith("0"),
    );
  let isKept: boolean | undefined;
  const copying = copyWhileRunning(database, {
    data: async () => {
      expect(await slots()).toHaveLength(1);
      const current = await currentSegment();
      await withSql(server.url, async (sql) => {
        for (let at = 0; at < 3; at += 1) {
          await sql`select pg_logical_emit_message(false, 'test', 'x')`;
          await sql`select pg_switch_wal()`;
          await sql`checkpoint`;
        }
      });
      isKept = (await segments()).includes(current);
      throw new Error("the disk is full");
    },
    log: () => Promise.resolve(),
  });
  await expect(copying).rejects.toThrow("the disk is full");
  expect(isKept).toBe(true);
  expect(await slots()).toEqual([]);
});

async function currentSegment(): Promise<string> {
  const [row] = await withSql(
    server.url,
    (sql) => sql<{ name: string }[]>`select pg_walfile_name(pg_current_wal_lsn()) as name`,
  );
  return row?.name ?? "";
}
