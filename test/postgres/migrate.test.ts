import postgres from "postgres";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import { createDatabase as openDatabase, sql } from "../../src/store/database.ts";
import { migrateDown, migrateUp, migrationStatus } from "../../src/store/migrate.ts";
import { createDatabase, type TestDatabase } from "../support/database.ts";
import { holdSession, newPush } from "../support/ledger.ts";
import { schemaOf } from "../support/ledger-fixture.ts";
import { runCommand } from "../support/service-process.ts";
import { addressOf, startTcpProxy } from "../support/broken-network.ts";

let created: TestDatabase;
let client: postgres.Sql;

/** Of migrations. */
const LOCK = 0x736c_6564;

beforeEach(async () => {
  created = await createDatabase();
  client = postgres(created.url, { max: 1, onnotice: () => undefined });
});
afterEach(async () => {
  await client.end();
  await created.drop();
});

async function pushOne(): Promise<void> {
  const options = { connectionsMax: 1, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
  const database = openDatabase({ url: () => created.url, ...options });
  await database.start();
  const outcomes = await append(database, [newPush("s")], { createMissing: true, wait: false });
  expect(outcomes[0]?.kind).toBe("stored");
  await database.stop();
}

describe("migrations", () => {
  test("up, down to nothing and up again, each with rows, give the same schema", async () => {
    await migrateUp(created.url);
    await pushOne();
    const first = await schemaOf(client);
    let status = await migrationStatus(created.url);
    expect(status.pending).toEqual([]);
    while (status.applied.length > 0) status = await migrateDown(created.url);
    expect(await schemaOf(client)).toEqual({
      columns: [],
      indexes: [],
      constraints: [],
      functions: [],
      relations: [],
    });
    expect((await migrateUp(created.url)).pending).toEqual([]);
    await pushOne();
    expect(await schemaOf(client)).toEqual(first);
  });

  // Bug: the driver's transaction ended the process with a TypeError (src/store/database.ts).
  test.each(["reset", "cut"] as const)(
    "a connection that is lost on the way (%s) ends the command with a reason, and nothing is done",
    async (how) => {
      let { applied } = await migrateUp(created.url);
      await pushOne();
      // Only the step down of the first one is sure to wait for a session.
      while (applied.length > 1) ({ applied } = await migrateDown(created.url, { force: true }));
      const url = new URL(created.url);
      const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
      url.host = addressOf(proxy);
      const watching = postgres(created.url, { max: 1 });
      try {
        await using _ = await holdSession(client, "s");
        const down = runCommand(["migrate", "down", "--yes"], { env: { DATABASE_URL: url.href } });
        const waiting = () => watching`
          select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
        await expect.poll(waiting).toHaveLength(1);
        proxy[how]();
        expect(await down).toMatchObject({
          exitCode: 3,
          stderr: expect.stringMatching(
            `^session-ledger: DATABASE_UNAVAILABLE: the database of DATABASE_URL at ${url.host} is not available \\([A-Z_]+\\)\n$`,
          ),
        });
      } finally {
        await watching.end();
        await proxy.stop();
      }
      expect((await migrationStatus(created.url)).applied).toEqual(applied);
    },
  );

  // Bug: six calls dropped every table under two services.
  test("migrate down is refused while a service is connected, except with --force", async () => {
    const { applied } = await migrateUp(created.url);
    const options = { connectionsMax: 3, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
    const serving = openDatabase({ url: () => created.url, ...options });
    await serving.start();
    try {
      const env = { DATABASE_URL: created.url };
      const refused = await runCommand(["migrate", "down", "--yes"], { env });
      expect(refused.stderr).toMatch(
        /^session-ledger: SCHEMA_IN_USE: session-ledger is connected to this database \(1 connection, from 127\.0\.0\.1\): .*--force.*\n$/,
      );
      expect(refused.exitCode).toBe(4);
      expect((await migrationStatus(created.url)).applied).toEqual(applied);
      expect(await runCommand(["migrate", "down", "--yes", "--force"], { env })).toMatchObject({
        exitCode: 0,
      });
    } finally {
      await serving.stop();
    }
    expect((await migrationStatus(created.url)).applied).toEqual(applied.slice(0, -1));
  });

  test("up --partitions divides the tables of rows and texts of a new database, by session", async () => {
    const env = { DATABASE_URL: created.url, ENGINE: "postgres" };
    const up = (...args: string[]) => runCommand(["migrate", "up", ...args], { env });
    expect(await up("--partitions", "4")).toMatchObject({ exitCode: 0, stderr: "" });
    const counts = await client`
      select inhparent::regclass::text as name, count(*)::int as count from pg_inherits
      join pg_class on oid = inhrelid and relkind = 'r' group by 1 order by 1`;
    expect([...counts]).toEqual(
      ["session_events", "session_messages", "session_texts"].map((name) => ({ name, count: 4 })),
    );
    const options = { connectionsMax: 1, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
    const database = openDatabase({ url: () => created.url, hasFixedPlans: true, ...options });
    await database.start();
    try {
      const pushes = Array.from({ length: 40 }, (_, at) => newPush(`s${at}`));
      await append(database, pushes, { createMissing: true, wait: false });
      const [spread] =
        await client`select count(distinct tableoid)::int as tables from session_events`;
      expect(spread).toEqual({ tables: 4 });
      const lines = await database.run(sql`
        explain analyze select seq from session_events where session_id = ${"s7"} order by seq limit 5`);
      const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
      expect(plan.match(/on session_events_p\d/g)).toHaveLength(1);
    } finally {
      await database.stop();
    }
    expect(await up()).toMatchObject({ exitCode: 0 });
    expect(await up("--partitions", "4")).toMatchObject({ exitCode: 0 });
    expect(await up("--partitions", "8")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("--partitions: the tables exist already with 4 partitions"),
    });
    expect(await up("--partitions", "129")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("Expected a number from 1 to 128"),
    });
    let status = await migrationStatus(created.url);
    while (status.applied.length > 0) status = await migrateDown(created.url);
    expect(await schemaOf(client)).toMatchObject({ relations: [] });
  });

  test("up --partitions refuses tables that exist without partitions", async () => {
    await migrateUp(created.url);
    await expect(migrateUp(created.url, { partitions: 4 })).rejects.toThrow(
      "--partitions: the tables exist already without partitions, expected a new database",
    );
    await expect(migrateUp(created.url, { partitions: 4, engine: "citus" })).rejects.toThrow(
      "--partitions: Citus divides the tables, expected ENGINE=postgres",
    );
  });

  test("down on an empty database does nothing", async () => {
    expect((await migrateDown(created.url)).applied).toEqual([]);
  });

  test("five instances that start at once migrate once", async () => {
    const statuses = await Promise.all(Array.from({ length: 5 }, () => migrateUp(created.url)));
    for (const status of statuses) expect(status.pending).toEqual([]);
    const [row] = await client`select count(*)::int as n from drizzle.__drizzle_migrations`;
    expect(row?.["n"]).toBe(statuses[0]?.applied.length);
  });

  test("an instance that starts while another one migrates waits longer than its role may", async () => {
    await client`select pg_advisory_lock(${LOCK})`;
    const { pathname } = new URL(created.url);
    for (const limit of ["lock_timeout", "statement_timeout"])
      await client.unsafe(`alter database "${pathname.slice(1)}" set ${limit} = '20ms'`);
    const waiting = migrateUp(created.url);
    waiting.catch(() => undefined);
    await expect
      .poll(async () => {
        const [row] = await client`
          select count(*)::int as n from pg_locks join pg_database d on d.oid = database
          where d.datname = current_database() and locktype = 'advisory' and not granted`;
        return row?.["n"];
      })
      .toBe(1);
    await client`select pg_sleep(0.05)`;
    await client`select pg_advisory_unlock(${LOCK})`;
    expect((await waiting).pending).toEqual([]);
  });

  test.each([
    ["before the first migration", 1795299686521],
    ["with other contents of it", 1795398330244],
  ])(
    "a schema of a development version, %s, is refused with instructions and left unchanged",
    async (_when, at) => {
      await client`create schema drizzle`;
      await client`create table drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint)`;
      await client`insert into drizzle.__drizzle_migrations (hash, created_at) values ('a', ${at})`;
      await client`create table sessions (id text primary key)`;
      const before = await schemaOf(client);
      const refusal = {
        reason: "SCHEMA_OLDER",
        message: expect.stringMatching(/only that version can read it.* dump .* restore /),
      };
      await expect(migrateUp(created.url)).rejects.toMatchObject(refusal);
      await expect(migrateDown(created.url)).rejects.toMatchObject(refusal);
      await expect(migrationStatus(created.url)).rejects.toMatchObject(refusal);
      const { exitCode, stderr } = await runCommand(["serve"], {
        env: { DATABASE_URL: created.url },
      });
      expect([exitCode, stderr.trimEnd().split("\n")]).toEqual([
        4,
        [expect.stringContaining("SCHEMA_OLDER")],
      ]);
      expect(await schemaOf(client)).toEqual(before);
    },
  );

  test("a schema newer than the code is refused by name and left unchanged", async () => {
    await migrateUp(created.url);
    await client`insert into drizzle.__drizzle_migrations (hash, created_at) values ('later', 9999999999999)`;
    const before = await schemaOf(client);
    await expect(migrateUp(created.url)).rejects.toMatchObject({ reason: "SCHEMA_NEWER" });
    await expect(migrateDown(created.url)).rejects.toMatchObject({ reason: "SCHEMA_NEWER" });
    expect((await migrationStatus(created.url)).unknown).toBe(1);
    expect(await schemaOf(client)).toEqual(before);
  });
});
