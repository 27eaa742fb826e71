/** Several services on one PostgreSQL: starts on an empty database, and rows of the other service. */
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { migrationStatus } from "../../src/store/migrate.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { runCommand, type ServiceProcess, startService } from "../support/service-process.ts";

const SERVICES = 3;
/** A call took longer than the client's 10 s beside many other processes. */
const PATIENT = { deadlineMs: 60_000 };

let database: OpenDatabase;
let sql: postgres.Sql;
const services: ServiceProcess[] = [];
let clients: readonly LedgerClient[] = [];

beforeAll(async () => {
  database = await openDatabase({ empty: true });
  ({ sql } = database);
  await startAtOnce();
  clients = services.map(({ grpcAddress }) => createLedgerClient({ address: grpcAddress }));
});

afterAll(async () => {
  for (const client of clients) client.close();
  await Promise.all(services.map((service) => service.stop()));
  await database.stop();
  await cleanUp();
});

/** All services wait for the first step of the migration, which another connection takes and rolls back. */
async function startAtOnce(): Promise<void> {
  const taken = Promise.withResolvers<void>();
  const come = Promise.withResolvers<void>();
  const givenUp = sql.begin(async (transaction) => {
    await transaction`create schema drizzle`;
    taken.resolve();
    await come.promise;
    await transaction`rollback`;
  });
  await taken.promise;
  const starting = Array.from({ length: SERVICES }, async () => {
    services.push(await startService({ databaseUrl: database.url }));
  });
  const started = Promise.allSettled(starting);
  try {
    await eventually(async () => expect(await waiting()).toBe(SERVICES));
  } finally {
    come.resolve();
    await givenUp;
    await started; // Or one that was refused would leave the others running.
  }
  await Promise.all(starting);
}

async function waiting(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
  return row?.count ?? 0;
}

function push(client: LedgerClient | undefined, sessionId: string) {
  const request = { sessionId, eventType: "user", payload: "hello" };
  return client?.call(ledger.pushSessionMessage, request, PATIENT);
}

describe("services that start at once on an empty database", () => {
  test("migrate it once", async () => {
    const { applied, pending, unknown } = await migrationStatus(database.url);
    expect({ pending, unknown }).toEqual({ pending: [], unknown: 0 });
    const rows = await sql`select created_at from drizzle.__drizzle_migrations`;
    expect(rows).toHaveLength(applied.length);
  });

  test("all serve the same sessions", async () => {
    for (const [at, client] of clients.entries()) {
      await expect(push(client, "shared")).resolves.toMatchObject({ seq: BigInt(at + 1) });
    }
    for (const client of clients) {
      const request = { sessionId: "shared" };
      const { items } = await client.call(ledger.listSessionMessages, request, PATIENT);
      expect(items.map(({ seq }) => seq)).toEqual([1n, 2n, 3n]);
    }
  });
});

test("a watch receives the commits and the deletion of another service", async () => {
  const [here, there] = clients;
  await push(there, "deleted");
  const seqs: bigint[] = [];
  const following = (async () => {
    const rows = here?.watch(ledger.watchSessionMessages, { sessionId: "deleted" }) ?? [];
    for await (const row of rows) seqs.push(row.seq);
  })();
  const ended = following.catch((error: unknown) => error);
  await eventually(() => expect(seqs).toEqual([1n]));
  await push(there, "deleted");
  await eventually(() => expect(seqs).toEqual([1n, 2n]));
  await there?.call(ledger.deleteSession, { id: "deleted" }, PATIENT);
  expect(await ended).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_DELETED" });
  await expect(push(here, "deleted")).rejects.toMatchObject({ reason: "SESSION_DELETED" });
});

test("a service refuses to start on a newer schema, and changes nothing", async () => {
  const created = await openDatabase({ empty: true });
  const { url, sql: newer } = created;
  const env = { DATABASE_URL: url };
  expect(await runCommand(["migrate", "up"], { env })).toMatchObject({ exitCode: 0 });
  await newer`insert into drizzle.__drizzle_migrations (hash, created_at) values ('x', 9999999999999)`;
  const { exitCode, stderr } = await runCommand(["serve"], { env });
  expect(exitCode).toBe(4);
  expect(stderr).toContain("SCHEMA_NEWER");
  expect(stderr).toContain("newer than this version");
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  expect(await runCommand(["migrate", "down", "--yes"], { env })).toMatchObject({ exitCode: 4 });
  const [kept] = await newer`select to_regclass('session_events') is not null as "exists"`;
  expect(kept).toEqual({ exists: true });
  await created.stop();
});
