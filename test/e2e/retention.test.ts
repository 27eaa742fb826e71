/**
 * Erased rows, as every kind of reader sees them: by the command, by the service itself, and by erasing
 * the whole session, with two services on one PostgreSQL.
 */
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createDatabase, type Database } from "../../src/store/database.ts";
import { runHere } from "../support/command-line.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { API } from "../support/http-clients.ts";
import { custom, finished, holdingOf, message, started, storeAged } from "../support/ledger.ts";
import { mergeFragments } from "../support/merging.ts";
import { newSession } from "../support/pushing.ts";
import {
  type CommandResult,
  runCommand,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";

const { method } = SessionService;

let shared: OpenDatabase;
let services: readonly [ServiceProcess, ServiceProcess];
let rpc: RpcClient;
let other: RpcClient;
beforeAll(async () => {
  shared = await openDatabase();
  const start = () => startService({ databaseUrl: shared.url });
  services = [await start(), await start()];
  rpc = new RpcClient(services[0].grpcAddress);
  other = new RpcClient(services[1].grpcAddress);
});
afterAll(async () => {
  rpc.close();
  other.close();
  for (const service of services) await service.stop();
  await shared.stop();
  await cleanUp();
});

/** Events 7 n + 1 to 7 n + 7: 1 start, 2 opens a message, 3 to 5 are one row, 6 closes it, 7 ends. */
async function pushRun(sessionId: string, runId: string): Promise<void> {
  const delta = (said: string) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: runId, delta: said });
  const events = [
    { type: "RUN_STARTED", threadId: "t", runId },
    { type: "TEXT_MESSAGE_START", messageId: runId, role: "assistant" },
    ...[`said in ${runId}`, ", in", " parts"].map(delta),
    { type: "TEXT_MESSAGE_END", messageId: runId },
    { type: "RUN_FINISHED", threadId: "t", runId },
  ];
  const raw = events.map((event) => ({ eventType: event.type, payload: JSON.stringify(event) }));
  await rpc.unary(method.pushSessionMessage, { sessionId, eventType: "user", payload: runId });
  for (const { eventType, payload, eventCount, fragments } of mergeFragments(raw)) {
    const merged = fragments === undefined ? {} : { eventCount, fragments };
    await rpc.unary(method.pushSessionEvent, { sessionId, eventType, payload, ...merged });
  }
}

/** As if the first run had been forty days ago. */
async function age(sessionId: string): Promise<void> {
  const { sql } = shared;
  await sql`update session_events set recorded_at = now() - interval '40 days'
    where session_id = ${sessionId} and seq <= 7`;
  await sql`update session_messages set recorded_at = now() - interval '41 days'
    where session_id = ${sessionId} and seq = 1`;
}

/**
 * Retention does not look at a session again before a young first row has become old. These rows become old
 * by an UPDATE, so no pass may see them before it: a pass does not look at a session that is held.
 */
async function whileHeld(sessionId: string, store: () => Promise<void>): Promise<void> {
  const { sql } = shared;
  const hold = "its rows are not old yet";
  await sql`insert into sessions (id, created_at, updated_at, hold) values (${sessionId}, now(), now(), ${hold})`;
  await store();
  await sql`update sessions set hold = null where id = ${sessionId}`;
}

async function aged(): Promise<string> {
  const sessionId = newSession();
  for (const runId of ["r1", "r2"]) await pushRun(sessionId, runId);
  await age(sessionId);
  return sessionId;
}

function retention(...args: readonly string[]) {
  const env = { DATABASE_URL: shared.url };
  return runCommand(["retention", "--older-than", "30d", "--json", ...args], { env });
}

async function get(path: string, { httpAddress } = services[0]): Promise<Response> {
  return fetch(`http://${httpAddress}${API}/sessions/${path}`);
}

const KEPT = [8n, 9n, 10n, 13n, 14n];
const KEPT_RAW = [8n, 9n, 10n, 11n, 12n, 13n, 14n];

async function watched(client: RpcClient, request: object): Promise<readonly bigint[]> {
  const seqs: bigint[] = [];
  const stream = client.serverStream(method.watchSessionEvents, { snapshotOnly: true, ...request });
  for await (const { seq } of stream) seqs.push(seq);
  return seqs;
}

async function joined(service: ServiceProcess, sessionId: string): Promise<string> {
  const body = { threadId: "t", runId: "x", state: {}, messages: [], tools: [], context: [] };
  const response = await fetch(`http://${service.httpAddress}/agui/sessions/${sessionId}`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify({ ...body, forwardedProps: {} }),
  });
  return response.text();
}

describe("a session without its oldest runs begins at its first row:", () => {
  let sessionId: string;
  let told: readonly CommandResult[];
  beforeAll(async () => {
    sessionId = await aged();
    told = [
      await retention("--session", sessionId, "--dry-run"),
      await retention("--session", sessionId),
    ];
  });

  test("a dry run prints what the real one then does", () => {
    const counts = { sessions: 1, sessionsErased: 1, sessionsBusy: 0, messages: 1, events: 5 };
    const summaries = told.map(({ stdout }): unknown => JSON.parse(stdout));
    expect(summaries).toMatchObject([
      { dryRun: true, ...counts },
      { dryRun: false, ...counts },
    ]);
    expect(told.map(({ exitCode }) => exitCode)).toEqual([0, 0]);
  });

  test.each([
    ["the beginning", 0n],
    ["a number inside a row that is gone", 4n],
    ["the last number that is gone", 7n],
  ])("pages and watches from %s", async (_name, afterSeq) => {
    const list = async (expand: boolean) => {
      const request = { sessionId, afterSeq, expand };
      const page = await rpc.unary(method.listSessionEvents, request);
      expect(page).toMatchObject({ nextAfterSeq: 14n, hasMore: false });
      return page.items.map(({ seq }) => seq);
    };
    expect(await list(false)).toEqual(KEPT);
    expect(await list(true)).toEqual(KEPT_RAW);
    expect(await watched(rpc, { sessionId, afterSeq })).toEqual(KEPT);
    expect(await watched(other, { sessionId, afterSeq, expand: true })).toEqual(KEPT_RAW);
  });

  test("pages downwards end at the first row", async () => {
    const { items, hasMore } = await rpc.unary(method.listSessionEvents, {
      sessionId,
      descending: true,
    });
    expect(items.map(({ seq }) => seq)).toEqual(KEPT.toReversed());
    expect(hasMore).toBe(false);
  });

  test("messages begin at the first row", async () => {
    const { items } = await rpc.unary(method.listSessionMessages, { sessionId });
    expect(items).toMatchObject([{ seq: 2n, payload: "r2" }]);
  });

  test("runs begin at the first row, also with a cursor before it", async () => {
    for (const query of ["", "?after_seq=3"]) {
      const page: unknown = await (await get(`${sessionId}/runs${query}`)).json();
      expect(page).toMatchObject({
        items: [{ run_id: "r2", status: "finished", first_seq: 8, last_seq: 14 }],
        has_more: false,
      });
    }
  });

  test("the transcript begins at this row, now and up to a number", async () => {
    for (const query of ["", "?up_to_seq=14"]) {
      const transcript: unknown = await (await get(`${sessionId}/transcript${query}`)).json();
      expect(transcript).toMatchObject({
        up_to_seq: 14,
        messages: [
          { role: "user", content: "r2" },
          { id: "r2", content: "said in r2, in parts" },
        ],
      });
    }
    expect(await (await get(`${sessionId}/transcript?up_to_seq=5`)).json()).toMatchObject({
      messages: [{ role: "user", content: "r2" }], // Before the next event.
    });
  });

  test("the export and the command line begin at this row", async () => {
    const lines = (await (await get(`${sessionId}/export`)).text()).trimEnd().split("\n");
    expect(lines).toHaveLength(7);
    expect(lines[0]).toContain('"r2"');
    const address = ["--address", services[0].grpcAddress];
    const tailed = await runHere(["tail", "--session", sessionId, "--after", "4", ...address]);
    expect(tailed.stdout.trimEnd().split("\n")).toHaveLength(5);
    const exported = await runHere(["export", sessionId, ...address]);
    expect(exported).toMatchObject({ exitCode: 0 });
    expect(exported.stdout.trimEnd().split("\n")).toHaveLength(7);
  });

  test("an AG-UI client begins at this row, with and without replay", async () => {
    const answer = await joined(services[0], sessionId);
    expect(answer).toContain("said in r2, in parts");
    expect(answer).toContain("RUN_FINISHED");
    expect(answer).not.toContain("r1");
  });
});

test("a session without rows gives empty pages, watches and joins, and then new rows", async () => {
  const sessionId = newSession();
  await pushRun(sessionId, "r1");
  await age(sessionId);
  await retention("--session", sessionId);
  expect(await rpc.unary(method.listSessionEvents, { sessionId })).toMatchObject({ items: [] });
  expect(await watched(rpc, { sessionId })).toEqual([]);
  expect(await watched(rpc, { sessionId, afterSeq: 3n, expand: true })).toEqual([]);
  expect(await (await get(`${sessionId}/transcript`)).json()).toMatchObject({ messages: [] });
  expect(await (await get(`${sessionId}/export`)).text()).toBe("");
  await pushRun(sessionId, "r2");
  expect(await watched(rpc, { sessionId, afterSeq: 3n })).toEqual(KEPT);
});

describe("the command", () => {
  test("works on an embedded database while no service runs on it, and is refused otherwise", async () => {
    const dataDir = await makeDirectory();
    const service = await startService({ dataDir });
    const env = { DATA_DIR: dataDir };
    const args = ["retention", "--older-than", "30d"];
    const refused = await runCommand(args, { env });
    expect(refused.exitCode).toBe(4);
    await service.stop();
    const done = await runCommand(args, { env });
    expect(done).toMatchObject({
      exitCode: 0,
      stdout: "erased 0 events and 0 messages (0 payload bytes) of 0 of 0 sessions\n",
    });
  });

  test("ends with an error for an unknown session, and without any rule", async () => {
    expect(await retention("--session", "nobody")).toMatchObject({ exitCode: 4, stdout: "" });
    const env = { DATABASE_URL: shared.url };
    expect((await runCommand(["retention"], { env })).exitCode).toBe(2);
    const never = await runCommand(["retention", "--older-than", "0d"], { env });
    expect(never).toMatchObject({ exitCode: 2, stdout: "" });
  });
});

describe("an erasure of a session", () => {
  test("ends its watches on both services, and leaves nothing to read", async () => {
    const sessionId = await aged();
    for (const service of services)
      expect(await joined(service, sessionId)).toContain("said in r1");
    const ends = [rpc, other].map(async (client) => {
      try {
        for await (const _ of client.serverStream(method.watchSessionEvents, { sessionId }));
      } catch (error) {
        return error;
      }
      return undefined;
    });
    const address = ["--address", services[0].grpcAddress];
    const without = await runHere(["erase", sessionId, ...address]);
    expect(without).toMatchObject({ exitCode: 2, stdout: "" });
    const erased = await runCommand(["erase", sessionId, "--yes", "--json", ...address]);
    expect(erased.exitCode).toBe(0);
    expect(JSON.parse(erased.stdout)).toEqual({ sessionId, messages: 2, events: 10 });
    for (const end of await Promise.all(ends)) {
      expect(end).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_DELETED" });
    }
    const isGone = { code: "NOT_FOUND" };
    for (const client of [rpc, other]) {
      await expect(client.unary(method.listSessionEvents, { sessionId })).rejects.toMatchObject(
        isGone,
      );
      await expect(client.unary(method.getSession, { id: sessionId })).rejects.toMatchObject(
        isGone,
      );
      await expect(client.unary(method.eraseSession, { id: sessionId })).rejects.toMatchObject(
        isGone,
      );
      const push = { sessionId, eventType: "user", payload: "again" };
      await expect(client.unary(method.pushSessionMessage, push)).rejects.toMatchObject(isGone);
    }
    for (const service of services) {
      expect((await get(`${sessionId}/transcript`, service)).status).toBe(404);
      expect(await joined(service, sessionId)).not.toContain("said in r1");
    }
    const again = await runHere(["erase", sessionId, "--yes", ...address]);
    expect(again.exitCode).toBe(4);
    expect(again.stderr).toContain("SESSION_NOT_FOUND");
  });
});

async function metrics({ opsAddress }: ServiceProcess): Promise<string> {
  return (await fetch(`http://${opsAddress}/metrics`)).text();
}

/** Eight batches and a few rows. */
const ROWS = 4_100;
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
        or (state = 'active' and query like '%ledger_erase_rows%'))`;
    ended += rows.length;
  }
  return ended;
}

// The last ones: their service erases whatever is old.
describe("a service that erases rows", () => {
  let database: Database;
  let service: ServiceProcess;
  let erasing: RpcClient;
  beforeAll(async () => {
    service = await startService({ databaseUrl: shared.url, env: { RETENTION_AFTER: "3m" } });
    erasing = new RpcClient(service.grpcAddress);
    // Under another name: it is not among those that are ended.
    const limits = { connectionsMax: 2, statementTimeoutMs: 10_000, lockTimeoutMs: 1_000 };
    const named = new URL(shared.url);
    named.searchParams.set("application_name", "test");
    database = createDatabase({ url: () => named.href, ...limits });
    await database.start();
  });
  afterAll(async () => {
    erasing.close();
    await database.stop();
    await service.stop();
  });

  test("serves none of them from memory, and its watches continue", async () => {
    const sessionId = newSession();
    const seen: bigint[] = [];
    const following = erasing.serverStream(method.watchSessionEvents, { sessionId });
    const ended = (async () => {
      for await (const { seq } of following) if (seen.push(seq) === 15) return;
    })();
    await following.attached;
    const transcript = async () => (await get(`${sessionId}/transcript`, service)).text();
    await whileHeld(sessionId, async () => {
      for (const runId of ["r1", "r2"]) await pushRun(sessionId, runId);
      await expect.poll(() => seen.length).toBe(10);
      expect(await transcript()).toContain("said in r1");
      await age(sessionId);
    });
    await expect.poll(transcript).not.toContain("said in r1");
    // The window that the watcher keeps open had all of these rows.
    expect(await watched(erasing, { sessionId })).toEqual(KEPT);
    await pushRun(sessionId, "r3");
    await ended;
    expect(seen.slice(10)).toEqual([15n, 16n, 17n, 20n, 21n]);
    expect(await metrics(service)).toMatch(
      /rows_erased_total\{stream="events",by="retention"\} \d/,
    );
  });

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
    const erasures = ids.map(async (id) => {
      while (!service.log.some((line) => line.includes("uncaught exception"))) {
        try {
          await erasing.unary(method.eraseSession, { id });
          return;
        } catch (error) {
          failures.push(error);
          // Half way: what the session says that it holds is what it holds.
          const { rowsOff, bytesOff } = await holdingOf(database, id);
          off.push({ rowsOff, bytesOff });
        }
      }
    });
    await Promise.all(erasures);
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
    const hasFailed = async () =>
      /retention_failures_total(?:{.*})? [1-9]/.test(await metrics(service));
    const ids: string[] = [];
    // One that is ended a moment after its statement fails nothing: until one was ended in time.
    do {
      const sessionId = `aged-${ids.length}`;
      ids.push(sessionId);
      const rows = Array.from({ length: ROWS }, (_, at) => custom(at, 85));
      const old = [started("a", 90), ...rows, finished("a", 80), started("b", 70)];
      await whileHeld(sessionId, async () => {
        await storeAged(database, { sessionId, stream: "messages" }, [message("m", 91)]);
        await storeAged(database, { sessionId, stream: "events" }, old);
      });
    } while (!(await hasFailed()));
    over.abort();
    expect(await ending).toBeGreaterThan(0);
    for (const id of ids) {
      const left = { messages: [], events: [BigInt(ROWS) + 3n], ...EXACT };
      await expect.poll(() => holdingOf(database, id)).toEqual(left);
    }
  });
});
