/**
 * Answers to pushes that are not at fault: a locked session, a database that is slow, gone or damaged,
 * a full queue. The test reaches its database through a proxy that it can cut.
 */
import type postgres from "postgres";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type BreakableWay, breakableWay } from "../support/broken-network.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { type CallOptions, RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { waitingForLocks } from "../support/ledger.ts";
import { failureOf, newSession, push, type Row, rowsOf, STREAMS } from "../support/pushing.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";

let database: OpenDatabase;
let way: BreakableWay;
let sql: postgres.Sql;
let service: ServiceProcess;
let client: RpcClient;

/** The fewest that QUEUE_BYTES_MAX allows. */
const QUEUE_ROWS_MAX = 32;

beforeAll(async () => {
  database = await openDatabase();
  ({ sql } = database);
  const url = new URL(database.url);
  way = await breakableWay({ host: url.hostname, port: Number(url.port) });
  url.port = String(way.port);
  service = await startService({
    databaseUrl: url.href,
    env: {
      STATEMENT_TIMEOUT_MS: "1000",
      QUEUE_BYTES_MAX: String(4_096 * QUEUE_ROWS_MAX),
      PAYLOAD_BYTES_MAX: "65536",
    },
  });
  client = new RpcClient(service.grpcAddress);
});

afterEach(async () => {
  await way.mend(); // So that a test that failed in between fails alone.
});

afterAll(async () => {
  client.close();
  await service.stop();
  await way.cut();
  await database.stop();
  await cleanUp();
});

/** Holds the session's row, as a silent transaction would, until `during` has ended. */
async function holding(sessionId: string, during: () => Promise<void>): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`select from sessions where id = ${sessionId} for update`;
    await during();
  });
}

/** Resolves when a backend waits for a session that another holds. */
async function untilWaiting(): Promise<void> {
  while ((await waitingForLocks(sql)) === 0);
}

function list(sessionId: string, options: CallOptions) {
  return client.unary(SessionService.method.listSessionMessages, { sessionId }, options);
}

const UNAVAILABLE = { code: "UNAVAILABLE", domain: "session-ledger" };

test("a deadline before the commit is DEADLINE_EXCEEDED, and a retry with the key gets the row", async () => {
  for (const stream of STREAMS) {
    const sessionId = newSession();
    const first = await push(client, stream, { sessionId });
    const keyed = { sessionId, idempotencyKey: "k" };
    await holding(sessionId, async () => {
      const failure = await failureOf(push(client, stream, keyed, { deadlineMs: 300 }));
      expect(failure.code).toBe("DEADLINE_EXCEEDED");
    });
    const retried = await push(client, stream, keyed);
    expect(retried.seq).toBe(2n);
    const rows = await rowsOf(client, stream, sessionId);
    expect(rows).toEqual([first, { ...retried, deduplicated: false }]);
  }
});

test("a slow statement is UNAVAILABLE and stores nothing", async () => {
  const sessionId = newSession();
  const first = await push(client, "messages", { sessionId });
  await sql.unsafe(`
    create function slow() returns trigger language plpgsql as
      $$ begin perform pg_sleep(3); return new; end $$;
    create trigger slow before insert on session_messages execute function slow()`);
  const failure = await failureOf(push(client, "messages", { sessionId }));
  await sql.unsafe("drop trigger slow on session_messages; drop function slow");
  expect(failure).toMatchObject({ ...UNAVAILABLE, reason: "DATABASE_UNAVAILABLE" });
  expect(failure.retryAfterMs).toBeGreaterThan(0);
  expect(await rowsOf(client, "messages", sessionId)).toEqual([first]);
  expect((await push(client, "messages", { sessionId })).seq).toBe(2n);
});

test("a full queue is RESOURCE_EXHAUSTED with a retry time, and every accepted push is stored", async () => {
  const sessionId = newSession();
  await push(client, "events", { sessionId });
  let settled: Promise<readonly PromiseSettledResult<Row>[]> = Promise.resolve([]);
  await holding(sessionId, async () => {
    const pushes = Array.from({ length: 3 * QUEUE_ROWS_MAX }, () =>
      push(client, "events", { sessionId }, { deadlineMs: 20_000 }),
    );
    settled = Promise.allSettled(pushes);
    // Refusals come at once; an accepted push waits until the session is free.
    await Promise.any(pushes.map((one) => failureOf(one)));
  });
  const outcomes = await settled;
  const refused = outcomes.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.length).toBeLessThan(outcomes.length);
  for (const failure of refused) {
    expect(failure).toBeInstanceOf(RpcFailure);
    expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "QUEUE_FULL" });
    expect(failure.retryAfterMs).toBeGreaterThan(0);
  }
  const rows = await rowsOf(client, "events", sessionId);
  expect(rows).toHaveLength(1 + outcomes.length - refused.length);
});

describe("a lost database", () => {
  const patient = { deadlineMs: 40_000 };

  test("in the middle of a commit: a push without a key is UNAVAILABLE, one with a key is stored once", async () => {
    const sessionId = newSession();
    const first = await push(client, "messages", { sessionId });
    let unkeyed: Promise<RpcFailure> | undefined;
    let keyed: Promise<Row> | undefined;
    await holding(sessionId, async () => {
      unkeyed = failureOf(push(client, "messages", { sessionId }, patient));
      keyed = push(client, "messages", { sessionId, idempotencyKey: "k" }, patient);
      await untilWaiting();
      await way.cut();
      await way.mend();
    });
    expect(await unkeyed).toMatchObject({ ...UNAVAILABLE, reason: "OUTCOME_UNKNOWN" });
    const stored = await keyed;
    const rows = await rowsOf(client, "messages", sessionId);
    expect(rows.map(({ seq }) => seq)).toEqual(rows.map((_, index) => BigInt(index + 1)));
    // The push without a key may be stored or not, as its answer says.
    const known = [first.id, stored?.id];
    expect(rows.map(({ id }) => id).filter((id) => known.includes(id))).toEqual(known);
  });

  test("readers get UNAVAILABLE, and are served as soon as the database is back", async () => {
    const sessionId = newSession();
    const first = await push(client, "messages", { sessionId });
    // STATEMENT_TIMEOUT_MS and the two seconds that an answer may take above it are well below: a
    // read that waits for a dead connection for ever would be DEADLINE_EXCEEDED.
    const read = () => list(sessionId, { deadlineMs: 6_000 });
    const many = () => Promise.all(Array.from({ length: 20 }, read));
    for (let round = 0; round < 3; round += 1) {
      await many(); // So that every connection of the pool is open.
      await way.cut();
      for (const readers of [1, 1, 3, 3, 3]) {
        const reads = Array.from({ length: readers }, () => failureOf(read()));
        for (const failure of await Promise.all(reads)) {
          expect(failure).toMatchObject({ ...UNAVAILABLE, reason: "DATABASE_UNAVAILABLE" });
        }
      }
      await way.mend();
      for (const page of await many()) expect(page.items).toEqual([first]);
    }
  });

  test("pushes get UNAVAILABLE with RetryInfo after the last retry, and work once it is back", async () => {
    const sessionId = newSession();
    const first = await push(client, "messages", { sessionId });
    await way.cut();
    await failureOf(list(sessionId, patient)); // By then the service knows.
    const pushes = ["", "k"].map((idempotencyKey) =>
      failureOf(push(client, "messages", { sessionId, idempotencyKey }, patient)),
    );
    for (const failure of await Promise.all(pushes)) {
      expect(failure).toMatchObject({ ...UNAVAILABLE, reason: "DATABASE_UNAVAILABLE" });
      expect(failure.retryAfterMs).toBeGreaterThan(0);
    }
    await way.mend();
    const second = await push(client, "messages", { sessionId, idempotencyKey: "k" }, patient);
    expect(second).toMatchObject({ seq: 2n, deduplicated: false });
    expect(await rowsOf(client, "messages", sessionId)).toEqual([first, second]);
  });
});

test("a defect is INTERNAL without detail outside, and its detail in the log has no payload", async () => {
  const sessionId = newSession();
  await push(client, "messages", { sessionId });
  const payload = "not for anybody's eyes";
  await sql`alter table session_messages rename column payload to elsewhere`;
  const failure = await failureOf(push(client, "messages", { sessionId, payload }));
  await sql`alter table session_messages rename column elsewhere to payload`;
  expect(failure).toMatchObject({
    code: "INTERNAL",
    message: "internal error",
    reason: "INTERNAL",
    violations: [],
    retryAfterMs: undefined,
  });
  const record = await eventually(() => {
    const found = service.log.find((line) => line.includes('"code":"INTERNAL"'));
    if (found === undefined) throw new Error("the log has no record of the defect");
    return found;
  });
  const { err, level } = z
    .object({ level: z.string(), err: z.object({ message: z.string() }) })
    .parse(JSON.parse(record));
  expect(level).toBe("error");
  expect(err.message).toMatch(/column "payload".+does not exist/);
  expect(service.log.join("\n")).not.toContain(payload);
  expect((await push(client, "messages", { sessionId })).seq).toBe(2n);
});

async function readyz(): Promise<{ readonly status: number; readonly why: string }> {
  const response = await fetch(`http://${service.opsAddress}/readyz`);
  return { status: response.status, why: await response.text() };
}

describe("/readyz", () => {
  // Bug: it asked only whether the database answers, so instances that could store nothing got calls.
  test.each([
    ["a table", "table session_events", /relation .*session_events.* does not exist/],
    [
      "the function that stores rows",
      "function ledger_append_pushes",
      /function ledger_append_pushes.* not exist/,
    ],
  ])(
    "is 503 with the reason while %s is missing, and 200 when it is back",
    async (_, what, why) => {
      const [kind, name] = what.split(" ");
      await sql.unsafe(`alter ${what} rename to away`);
      try {
        const no = { status: 503, why: expect.stringMatching(why) };
        await expect.poll(readyz).toEqual(no);
      } finally {
        await sql.unsafe(`alter ${kind} away rename to ${name}`);
      }
      await expect.poll(readyz).toMatchObject({ status: 200 });
    },
  );

  // Bug: the same, where the database takes an empty append and no row.
  test("is 503 with the reason while every push fails, and 200 after a push is stored", async () => {
    const sessionId = newSession();
    await sql.unsafe(`
      create function no_disk() returns trigger language plpgsql as
        $$ begin raise exception 'a payload' using errcode = '58030'; end $$;
      create trigger no_disk before insert on session_messages for each row execute function no_disk()`);
    try {
      const no = await eventually(async () => {
        await failureOf(push(client, "messages", { sessionId }));
        const answer = await readyz();
        expect(answer.status).toBe(503);
        return answer;
      });
      expect(no.why).toContain("pushes fail (58030)");
      expect(no.why).not.toContain("payload");
    } finally {
      await sql.unsafe("drop function no_disk cascade");
    }
    await push(client, "messages", { sessionId });
    await expect.poll(readyz).toMatchObject({ status: 200 });
  });
});
