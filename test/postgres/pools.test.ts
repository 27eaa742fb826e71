/** The connections of pools that lost one: those that are left go away, in the end and at the stop. */
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { randomPort } from "../../src/postgres/server.ts";
import { createDatabase, type Database } from "../../src/store/database.ts";
import { hostAndPort, startTcpProxy } from "../support/broken-network.ts";
import { createDatabase as createTestDatabase, type TestDatabase } from "../support/database.ts";

const CONNECTIONS_MAX = 10;
const LIMITS = { connectionsMax: CONNECTIONS_MAX, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
const IN_FLIGHT = 64;
/** Each retires a pool with a few statements that wait in it. */
const KILLS = 40;

let created: TestDatabase;
let witness: postgres.Sql;
beforeAll(async () => {
  created = await createTestDatabase();
  witness = postgres(created.url, { max: 1, onnotice: () => undefined });
  await witness`select 1`;
});
afterAll(async () => {
  await witness.end();
  await created.drop();
});

async function open(): Promise<Database> {
  const database = createDatabase({ ...LIMITS, url: () => created.url });
  await database.start();
  return database;
}

/** As this process has them: those that are being made, and those that no backend serves, too. */
const sockets = (): number =>
  process.getActiveResourcesInfo().filter((name) => name.startsWith("TCP")).length;

/** Keeps statements in flight while backends are ended, one after the other. */
async function busyWhileEnding(database: Database): Promise<ReadonlySet<unknown>> {
  const failed = new Set<unknown>();
  const over = new AbortController();
  const lane = async (index: number): Promise<void> => {
    while (!over.signal.aborted) {
      // Of several shapes: while a connection prepares one, the driver keeps the others waiting.
      const statement = sql`select pg_sleep(0.002), ${sql.raw(`${index % 7}`)} as n, ${"x"}::text as t`;
      await database.run(statement).catch((error: { readonly reason?: string }) => {
        failed.add(error.reason);
      });
    }
  };
  const lanes = Array.from({ length: IN_FLIGHT }, (_, index) => lane(index));
  for (let kill = 0; kill < KILLS; ) {
    const ended = await witness`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and state = 'active' limit 1`;
    kill += ended.length;
  }
  over.abort();
  await Promise.all(lanes);
  return failed;
}

test("a busy pool whose connections were killed leaves none open", async () => {
  // Bug: the driver made connections again for what waited in a pool that had been ended.
  const before = sockets();
  const database = await open();
  const failed = await busyWhileEnding(database);
  expect([...failed]).toEqual(["DATABASE_UNAVAILABLE"]);
  await expect.poll(sockets).toBeLessThanOrEqual(before + CONNECTIONS_MAX);
  await database.run(sql`select 1`);
  await database.stop();
  // Fewer, if another file of this worker has left some that have closed meanwhile.
  await expect.poll(sockets).toBeLessThanOrEqual(before);
});

test.each(["08000", "08006", "08P01"])(
  "SQLSTATE %s in the answer of a living server leaves the pool as it is",
  async (code) => {
    const database = await open();
    const pidOf = async (): Promise<unknown> =>
      (await database.run(sql`select pg_backend_pid() as pid`))[0]?.["pid"];
    const pid = await pidOf();
    const raised = `do $$ begin raise exception 'of another server' using errcode = '${code}'; end $$`;
    await expect(database.attempt(sql.raw(raised))).rejects.toMatchObject({ code });
    expect(await pidOf()).toBe(pid);
    await database.stop();
  },
);

describe("a pool that was refused while its server was away", () => {
  // Bug: a connection that was refused before the driver had written to it never wrote again.
  test.each([1, 2])("answers at once when it is back, with %i hosts", async (hosts) => {
    const port = randomPort();
    const { host } = new URL(created.url);
    const away = created.url.replace(host, Array(hosts).fill(`127.0.0.1:${port}`).join(","));
    const database = createDatabase({ ...LIMITS, url: () => away });
    await expect(database.start()).rejects.toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
    const all = () =>
      Array.from({ length: CONNECTIONS_MAX }, () => database.run(sql`select 7 as n, ${"x"}::text`));
    for (let times = 0; times < 5; times += 1) await Promise.allSettled(all());
    const way = await startTcpProxy(hostAndPort(host), port);
    const answers = await Promise.all(all());
    expect(answers.map(([row]) => row?.["n"])).toEqual(Array(CONNECTIONS_MAX).fill(7));
    await database.stop();
    await way.stop();
  });
});

/** As a process that has no CPU: nothing is read, and every timer is late. */
function busyFor(ms: number): void {
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

describe("a statement of a process that is busy for longer than its limit", () => {
  // Bug: the timer of the limit ran before the socket was read or written, and the pool was given up.
  let database: Database;
  let pid: unknown;
  const pidOf = async (): Promise<unknown> =>
    (await database.run(sql`select pg_backend_pid() as pid`))[0]?.["pid"];
  beforeAll(async () => {
    database = createDatabase({
      url: () => created.url,
      connectionsMax: 1,
      statementTimeoutMs: 2_000, // A server without CPU may take a second for the statement.
      lockTimeoutMs: 10,
    });
    await database.start();
    pid = await pidOf();
  });
  afterAll(() => database.stop());

  test("has its answer taken, if that came meanwhile", async () => {
    const running = database.run(sql`select pg_sleep(0.05), 7 as n`);
    await expect
      .poll(
        () =>
          witness`select 1 from pg_stat_activity where pid = ${String(pid)} and query like '%pg_sleep%'`,
      )
      .toHaveLength(1);
    busyFor(4_500);
    expect((await running)[0]).toMatchObject({ n: 7 });
    expect(await pidOf()).toBe(pid);
  });

  test("is answered, if only a part of it was sent before", async () => {
    // The driver sends the values of a new statement after the server has told their types.
    const running = database.run(sql`select ${8}::int as n`);
    busyFor(4_500);
    expect((await running)[0]).toMatchObject({ n: 8 });
    expect(await pidOf()).toBe(pid);
  });
});
