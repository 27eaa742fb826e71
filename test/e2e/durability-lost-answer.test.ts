/**
 * The commit happens and its answer does not come: the connection between the service and PostgreSQL
 * is cut in between. Whether the push is stored is then open, and only a key tells.
 */
import type postgres from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createLedgerClient, type LedgerClient } from "@session-ledger/runner/internal/client";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { problemsOf, readWitness, type Witness } from "../support/history-check.ts";
import { send } from "../support/history-clients.ts";
import { History, plan, PUSH_KINDS, type PushRecord } from "../support/history.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";
import { startTcpProxy, type TcpProxy } from "../support/broken-network.ts";

const POLL = { interval: 5 };

let database: OpenDatabase;
let sql: postgres.Sql;
let proxy: TcpProxy;
let service: ServiceProcess;
let client: LedgerClient;

beforeAll(async () => {
  database = await openDatabase();
  ({ sql } = database);
  const url = new URL(database.url);
  proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  url.port = String(proxy.port);
  // Long enough to keep the answers back while a push waits.
  url.searchParams.set("lock_timeout", "2500");
  service = await startService({ databaseUrl: url.href });
  client = createLedgerClient({ address: service.grpcAddress });
});

afterAll(async () => {
  client.close();
  await service.stop();
  await proxy.stop();
  await database.stop();
  await cleanUp();
});

function witness(history: History): Promise<Witness> {
  return readWitness(sql, history.sessionIds());
}

/**
 * The push is committed, and its sender gets no answer: the push waits for a lock on its session, and
 * the connection drops answers before the lock is released.
 */
async function commitUnheard(
  history: History,
  push: PushRecord,
): Promise<{ readonly sent: Promise<unknown> }> {
  const { sessionId } = push.sent;
  const first = history.push(plan(history, { sessionId, kind: "event", keyed: false }));
  await send({ history, client }, first);
  const { rows } = await witness(history);
  await using held = await holdSession(sql, sessionId);
  const sent = send({ history, client }, push, { retryForMs: 0, deadlineMs: 30_000 });
  sent.catch(() => undefined); // Looked at by the caller.
  try {
    await expect.poll(() => waitingForLocks(sql), POLL).toBe(1);
    proxy.holdAnswers();
    await held.release();
    await expect
      .poll(async () => (await witness(history)).rows.length, POLL)
      .toBe(rows.length + push.sent.rows);
  } finally {
    proxy.cut();
  }
  return { sent };
}

test.each(PUSH_KINDS)(
  "%s with a key: the service finds the commit and answers normally",
  async (kind) => {
    const history = new History();
    const push = history.push(plan(history, { sessionId: `keyed-${kind}`, kind, keyed: true }));
    const { sent } = await commitUnheard(history, push);
    await sent;
    await send({ history, client }, push);
    expect(problemsOf(history, await witness(history))).toEqual([]);
  },
);

test("a push without a key gets OUTCOME_UNKNOWN and is stored once", async () => {
  const history = new History();
  for (const kind of PUSH_KINDS) {
    const push = history.push(plan(history, { sessionId: "unkeyed", kind, keyed: false }));
    const { sent } = await commitUnheard(history, push);
    await expect(sent).rejects.toMatchObject({ code: "UNAVAILABLE", reason: "OUTCOME_UNKNOWN" });
  }
  // What comes next finds a connection, and a session that is in order.
  const next = history.push(plan(history, { sessionId: "unkeyed", kind: "event", keyed: false }));
  await send({ history, client }, next);
  const { rows } = await witness(history);
  const expected = history.pushes.reduce((sum, push) => sum + push.sent.rows, 0);
  expect(rows).toHaveLength(expected);
  expect(problemsOf(history, await witness(history))).toEqual([]);
});
