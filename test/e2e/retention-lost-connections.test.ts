/**
 * Connections that are lost while retention or EraseSession erases rows: during a statement of a
 * batch, and between two statements if the batch has two.
 */
import type postgres from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { createDatabase, type Database } from "../../src/store/database.ts";
import { custom, finished, holdingOf, message, started, storeAged } from "../support/ledger.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";

const { method } = SessionService;
/** Eight batches and a few rows. */
const ROWS = 4_100;

let shared: OpenDatabase;
let database: Database;
let service: ServiceProcess;
let rpc: RpcClient;
beforeAll(async () => {
  shared = await openDatabase();
  const { url } = shared;
  service = await startService({
    env: { DATABASE_URL: url, RETENTION_AFTER: "3m" },
  });
  rpc = new RpcClient(service.grpcAddress);
  // Under another name: it is not among those that are ended.
  const limits = { connectionsMax: 2, statementTimeoutMs: 10_000, lockTimeoutMs: 1_000 };
  const named = new URL(url);
  named.searchParams.set("application_name", "test");
  database = createDatabase({ url: () => named.href, ...limits });
  await database.start();
});
afterAll(async () => {
  rpc.close();
  await database.stop();
  await service.stop();
  await shared.stop();
  await cleanUp();
});

const EXACT = { rowsOff: 0, bytesOff: 0 };

/** Ends connections of erasing batches until `endedMax` or the signal; resolves with their number. */
async function endBatches(
  sql: postgres.Sql,
  { endedMax, until }: { readonly endedMax: number; readonly until: AbortSignal },
): Promise<number> {
  let ended = 0;
  while (ended < endedMax && !until.aborted) {
    const rows = await sql`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'session-ledger' and (state = 'idle in transaction'
        or (state = 'active' and query like '%delete from%' and query not like '%imported_rows%'))`;
    ended += rows.length;
  }
  return ended;
}

async function metric(name: string): Promise<number> {
  const text = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(name));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

// Bug: a batch was a transaction of three statements by the driver's `begin`. One that lost its
// connection between two of them ended the process: an uncaught TypeError of postgres.js 3.4.9.
test("an erasure is answered or repeated after a lost connection, and leaves nothing", async () => {
  const ids = ["erased-0", "erased-1", "erased-2"];
  for (const sessionId of ids) {
    const rows = Array.from({ length: ROWS }, (_, at) => custom(at, 0));
    await storeAged(database, { sessionId, stream: "events" }, rows);
  }
  const over = new AbortController();
  const ending = endBatches(shared.sql, { endedMax: 25, until: over.signal });
  const failures: unknown[] = [];
  const off: unknown[] = [];
  const erasing = ids.map(async (id) => {
    while (!service.log.some((line) => line.includes("uncaught exception"))) {
      try {
        await rpc.unary(method.eraseSession, { id });
        return;
      } catch (error) {
        failures.push(error);
        // Half way: what the session says that it holds is what it holds.
        const { rowsOff, bytesOff } = await holdingOf(database, id);
        off.push({ rowsOff, bytesOff });
      }
    }
  });
  await Promise.all(erasing);
  over.abort();
  expect(await ending).toBeGreaterThan(0);
  for (const failure of failures) expect(failure).toMatchObject({ code: "UNAVAILABLE" });
  for (const one of off) expect(one).toEqual(EXACT);
  expect(service.log.join("\n")).not.toContain("uncaught exception");
  for (const id of ids) {
    expect(await holdingOf(database, id)).toEqual({ messages: [], events: [], ...EXACT });
  }
});

test("a failed pass of retention is repeated, and its counts are exact", async () => {
  const over = new AbortController();
  const ending = endBatches(shared.sql, { endedMax: Infinity, until: over.signal });
  const hasFailed = async () => (await metric("session_ledger_retention_failures_total")) > 0;
  const ids: string[] = [];
  // One that is ended a moment after its statement fails nothing: until one was ended in time.
  do {
    const sessionId = `aged-${ids.length}`;
    ids.push(sessionId);
    const rows = Array.from({ length: ROWS }, (_, at) => custom(at, 85));
    const aged = [started("a", 90), ...rows, finished("a", 80), started("b", 70)];
    await storeAged(database, { sessionId, stream: "messages" }, [message("m", 91)]);
    await storeAged(database, { sessionId, stream: "events" }, aged);
  } while (!(await hasFailed()));
  over.abort();
  expect(await ending).toBeGreaterThan(0);
  for (const id of ids) {
    const left = { messages: [], events: [BigInt(ROWS) + 3n], ...EXACT };
    await expect.poll(() => holdingOf(database, id)).toEqual(left);
  }
});
