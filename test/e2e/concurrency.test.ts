/**
 * Pushes that race on two services with one PostgreSQL, shown one by one: a transaction locks a session
 * until they wait for it. test/e2e/faults.test.ts has many writers and readers at once.
 */
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { problemsOf, readWitness } from "../support/history-check.ts";
import { send } from "../support/history-clients.ts";
import {
  History,
  plan,
  type Plan,
  PUSH_KINDS,
  type PushRecord,
  reasonOf,
} from "../support/history.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";

const LOCK_TIMEOUT_MS = 2_400;
/** 1,600 pushes at once took more than the client's 10 s on a busy machine. */
const DEADLINE_MS = 60_000;
/** Longer than any of these tests takes. */
const PATIENT_MS = 230_000;

let database: OpenDatabase;
let services: readonly ServiceProcess[];
let clients: readonly [LedgerClient, LedgerClient];
let sql: postgres.Sql;

beforeAll(async () => {
  database = await openDatabase();
  const url = new URL(database.url);
  // A push that waits for a lock shows in the results, because the wait is this long.
  url.searchParams.set("lock_timeout", String(LOCK_TIMEOUT_MS));
  // Small batches: two run at once, and the pushes of a session are in several.
  const env = { QUEUE_BYTES_MAX: String(4_096 * 32 * 32), PAYLOAD_BYTES_MAX: "1048576" };
  const start = () => startService({ databaseUrl: url.href, env });
  const [first, second] = await Promise.all([start(), start()]);
  services = [first, second];
  clients = [
    createLedgerClient({ address: first.grpcAddress }),
    createLedgerClient({ address: second.grpcAddress }),
  ];
  ({ sql } = database);
});

afterAll(async () => {
  for (const client of clients) client.close();
  await Promise.all(services.map((service) => service.stop()));
  await database.stop();
  await cleanUp();
});

/** To both services at once when there is a key, else to one of the two. */
async function sendAtOnce(history: History, push: PushRecord, turn: number): Promise<void> {
  const [first, second] = clients;
  const keyed = push.sent.key !== undefined;
  const to = keyed ? clients : [turn % 2 === 0 ? first : second];
  const options = { deadlineMs: DEADLINE_MS };
  await Promise.all(to.map((client) => send({ history, client }, push, options)));
}

function newPush(history: History, options: Plan): PushRecord {
  return history.push(plan(history, options));
}

describe("attempts of one key at once on both services", () => {
  test.each(PUSH_KINDS)(
    "%s: one attempt stores the row, and the others get that row",
    async (kind) => {
      const history = new History();
      const sessionId = `race-${kind}`;
      await sendAtOnce(history, newPush(history, { sessionId, kind: "event", keyed: false }), 0);
      await using held = await holdSession(sql, sessionId);
      const push = newPush(history, { sessionId, kind, keyed: true });
      const sending = sendAtOnce(history, push, 0);
      await expect.poll(() => waitingForLocks(sql), { interval: 2 }).toBe(2);
      // Two attempts on each service wait for the first, and so become one batch.
      const behind = newPush(history, { sessionId, kind, keyed: true });
      const sendingBehind = [sendAtOnce(history, behind, 0), sendAtOnce(history, behind, 0)];
      // Those have arrived when one that was sent after them is stored.
      await sendAtOnce(
        history,
        newPush(history, { sessionId: `${sessionId}-not`, kind, keyed: true }),
        0,
      );
      await held.release();
      await Promise.all([sending, ...sendingBehind]);
      expect([push.attempts.length, behind.attempts.length]).toEqual([2, 4]);
      const next = newPush(history, { sessionId, kind, keyed: false });
      await sendAtOnce(history, next, 1);
      expect(problemsOf(history, await readWitness(sql, history.sessionIds()))).toEqual([]);
    },
  );
});

describe("pushes sent on one connection without waiting", () => {
  const turns = Array.from({ length: 200 }, (_, turn) => turn);

  /** Each carries its turn; small ones stay in order on their way to the service. */
  async function pipeline(sessionId: string): Promise<void> {
    const [client] = clients;
    const options = { deadlineMs: DEADLINE_MS };
    const requests = turns.map((turn) => ({
      sessionId,
      eventType: "user",
      payload: String(turn),
    }));
    await Promise.all(
      requests.map((request) => client.call(ledger.pushSessionMessage, request, options)),
    );
  }

  async function payloadsOf(sessionId: string): Promise<readonly number[]> {
    const { rows } = await readWitness(sql, [sessionId]);
    const messages = rows.filter(({ stream }) => stream === "messages");
    return messages.map(({ payload }) => Number(payload));
  }

  test("are stored in the order they were sent, in each of several sessions", async () => {
    const sessionIds = Array.from({ length: 8 }, (_, at) => `pipelined-${at}`);
    await Promise.all(sessionIds.map(pipeline));
    for (const sessionId of sessionIds) expect(await payloadsOf(sessionId)).toEqual(turns);
  });

  test("are stored once, in order, while another connection locks their session again and again", async () => {
    const history = new History();
    const first = newPush(history, { sessionId: "interrupted", kind: "event", keyed: false });
    await sendAtOnce(history, first, 0);
    const through = new AbortController();
    const pipelining = pipeline("interrupted").then(() => through.abort());
    while (!through.signal.aborted) {
      await using held = await holdSession(sql, "interrupted");
      await sql`select 1`; // It is held for a round trip at least.
      await held.release();
    }
    await pipelining;
    expect(await payloadsOf("interrupted")).toEqual(turns);
  });
});

describe("a replaced writer", () => {
  test("stores nothing after its successor on any service, and can still look up its earlier rows", async () => {
    const history = new History();
    const sessionId = "fenced";
    const [first, second] = clients;
    const ofEpoch = (epoch: bigint, at: number): PushRecord => {
      const kind = PUSH_KINDS[at % PUSH_KINDS.length] ?? "event";
      return newPush(history, { sessionId, kind, keyed: true, epoch });
    };
    const old: PushRecord[] = [];
    const outcomes: string[] = [];
    const replaced = (async () => {
      while (!outcomes.includes("STALE_EPOCH")) {
        const push = ofEpoch(1n, old.length);
        old.push(push);
        outcomes.push(await send({ history, client: first }, push).then(() => "stored", reasonOf));
      }
    })();
    await expect.poll(() => outcomes.length).toBeGreaterThan(20);
    await send({ history, client: second }, ofEpoch(2n, 0));
    await replaced;
    // From here on every attempt of the old writer that is new is refused.
    for (const client of clients) {
      await expect(send({ history, client }, ofEpoch(1n, 0))).rejects.toMatchObject({
        code: "FAILED_PRECONDITION",
        reason: "STALE_EPOCH",
      });
      const [known] = old;
      if (known !== undefined) await send({ history, client }, known);
    }
    expect(problemsOf(history, await readWitness(sql, history.sessionIds()))).toEqual([]);
  });
});

describe("a session that an idle transaction locks", () => {
  test("does not stall other sessions, and its own pushes continue after the unlock", async () => {
    // A push that waited for the lock would wait until the unlock: no limit ends the wait before that.
    const url = new URL(database.url);
    url.searchParams.set("lock_timeout", String(PATIENT_MS));
    url.searchParams.set("statement_timeout", String(2 * PATIENT_MS));
    const patient = await startService({ databaseUrl: url.href });
    onTestFinished(() => endService(patient));
    const client = createLedgerClient({ address: patient.grpcAddress });
    onTestFinished(() => client.close());
    const history = new History();
    const pushTo = async (sessionId: string): Promise<void> => {
      const push = newPush(history, { sessionId, kind: "event", keyed: false });
      await send({ history, client }, push, { deadlineMs: PATIENT_MS });
    };
    const sessions = ["held", "free-1", "free-2", "free-3"];
    for (const sessionId of sessions) await pushTo(sessionId);
    await using held = await holdSession(sql, "held");
    let isThrough = false;
    const stuck = Promise.all([pushTo("held"), pushTo("held")]).then(() => (isThrough = true));
    await expect.poll(() => waitingForLocks(sql)).toBe(1);
    for (let turn = 0; turn < 200; turn += 1) await pushTo(sessions[1 + (turn % 3)] ?? "");
    expect(isThrough).toBe(false);
    await held.release();
    await stuck;
    expect(problemsOf(history, await readWitness(sql, history.sessionIds()))).toEqual([]);
  });

  test("answers a push after the last retry that nothing was stored, and stores nothing", async () => {
    const history = new History();
    const of = { sessionId: "for-ever", kind: "event" } as const;
    const push = newPush(history, { ...of, keyed: false });
    await sendAtOnce(history, newPush(history, { ...of, keyed: true }), 0);
    await using held = await holdSession(sql, "for-ever");
    const [client] = clients;
    await expect(
      send({ history, client }, push, { retryForMs: 0, deadlineMs: 30_000 }),
    ).rejects.toMatchObject({ code: "UNAVAILABLE", reason: "DATABASE_UNAVAILABLE" });
    await held.release();
    expect(problemsOf(history, await readWitness(sql, history.sessionIds()))).toEqual([]);
  });
});
