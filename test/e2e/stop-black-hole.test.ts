/** A stop while the database does not answer: its connections stand, and nothing comes back. */
import type postgres from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createLedgerClient, ledger } from "../../src/runner/client.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { startService } from "../support/service-process.ts";
import { startTcpProxy, type TcpProxy } from "../support/broken-network.ts";
import { capped } from "../support/eventually.ts";

const STOP_LIMIT_MS = 1_000;

let database: OpenDatabase;
let sql: postgres.Sql;
let proxy: TcpProxy;

beforeAll(async () => {
  database = await openDatabase();
  ({ sql } = database);
  const { hostname, port } = new URL(database.url);
  proxy = await startTcpProxy({ host: hostname, port: Number(port) });
});

afterAll(async () => {
  await proxy.stop();
  await database.stop();
  await cleanUp();
});

test("a stop ends within its limit with pushes and watches in a database black hole", async () => {
  const url = new URL(database.url);
  url.port = String(proxy.port);
  url.searchParams.set("lock_timeout", "2500");
  const env = {
    DATABASE_URL: url.href,
    STOP_LIMIT_MS: String(STOP_LIMIT_MS),
  };
  const service = await startService({ env });
  const client = createLedgerClient({ address: service.grpcAddress });
  const request = { sessionId: "s", eventType: "user", payload: "hello" };
  await client.call(ledger.pushSessionMessage, request);
  const attached = Promise.withResolvers<void>();
  const following = (async () => {
    const watch = client.watch(
      ledger.watchSessionMessages,
      { sessionId: "s" },
      { onAttached: attached.resolve },
    );
    for await (const row of watch) expect(row.sessionId).toBe("s");
  })();
  const ended = following.catch((error: unknown) => error);
  await attached.promise;
  // The push is under way on a connection that stands: one that is being made has a limit of its own.
  await using held = await holdSession(sql, "s");
  const pushing = client.call(ledger.pushSessionMessage, request, { deadlineMs: 60_000 });
  const refused = pushing.catch((error: unknown) => error);
  await expect.poll(() => waitingForLocks(sql), { interval: 5 }).toBe(1);
  proxy.holdAnswers();
  await held.release();

  const exitCode = await capped(service.stop()).catch(() => "killed");
  await service.kill("SIGKILL");
  expect(exitCode).toBe(0);
  expect(await refused).toMatchObject({ code: "UNAVAILABLE" });
  expect(await ended).toMatchObject({ code: "UNAVAILABLE" });
  client.close();
});
