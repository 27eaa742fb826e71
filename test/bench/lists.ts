/**
 * Lists and searches of a large ledger: the time and the plan of each order and filter, on the first page
 * and on one far behind it, over the time of SQL for 100 sessions by their ids. Then the pushes of a
 * neighbour while one viewer asks for all of them at once, over the same pushes alone; and how late search
 * finds a text under load.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { SessionOrder, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createDatabase, type Database, sql } from "../../src/store/database.ts";
import { pageStatement, type SessionsPage } from "../../src/store/session-list.ts";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { type Latency, latencyOf, rounded } from "./figures.ts";
import { type Ledger, startLedger } from "./servers.ts";

const { listSessions, pushSessionMessage, searchTexts } = SessionService.method;

const SESSIONS = 1_000_000;
const TEXTS = 300_000;
const QUICK = 2_000;
const ASKS = 20;
const ASKS_QUICK = 2;
const LANES = 8;
/** Pushes of a lane a second. */
const PACE = 20;
const SECONDS = 20;
const CALL = { deadlineMs: 60_000 } as const;

/** As the contract and the store name it. */
interface Listing extends Pick<SessionsPage, "order"> {
  readonly filter?: Omit<NonNullable<SessionsPage["filter"]>, "state">;
  readonly orderBy?: SessionOrder;
}

const BY_ACTIVITY = { orderBy: SessionOrder.ACTIVITY, order: "activity" } as const;
const BY_WAIT = { orderBy: SessionOrder.WAITING, order: "waiting" } as const;

const LISTS: Readonly<Record<string, Listing>> = {
  newest: {},
  activity: BY_ACTIVITY,
  waiting: { ...BY_WAIT, filter: { waiting: true } },
  "waiting, newest": { filter: { waiting: true } },
  running: { filter: { running: true } },
  "running, by activity": { ...BY_ACTIVITY, filter: { running: true } },
  project: { filter: { projectId: "half" } },
  "project, by activity": { ...BY_ACTIVITY, filter: { projectId: "half" } },
  "small project, by activity": { ...BY_ACTIVITY, filter: { projectId: "p7" } },
  parent: { filter: { parentSessionId: "bench-7" } },
  "parent, by activity": { ...BY_ACTIVITY, filter: { parentSessionId: "bench-7" } },
  "frequent phase": { filter: { phase: "Completed" } },
  "rare phase": { filter: { phase: "Creating" } },
  "rare phase, by activity": { ...BY_ACTIVITY, filter: { phase: "Creating" } },
  "frequent label": { filter: { labels: { team: "3" } } },
  "rare label": { filter: { labels: { number: "12345" } } },
  "a text of no session": { filter: { query: "zzz" } },
  "a text of many sessions": { filter: { query: "name 1" } },
  "a text of no session, by activity": { ...BY_ACTIVITY, filter: { query: "zzz" } },
};

const WORDS = Array.from({ length: 110 }, (_, n) => `w${n}`);
const SEARCHES: Readonly<Record<string, string>> = {
  "a rare word": "rare777",
  "a word of every text": "everywhere",
  "a word of no text": "nowhere",
  "110 words": WORDS.join(" or "),
};

export async function benchLists(bench: Bench): Promise<Findings> {
  const { quick, calls } = bench.options;
  const ledger = await startLedger(bench);
  const client = new RpcClient(ledger.address);
  bench.undo.defer(() => client.close());
  const sessions = calls ?? (quick ? QUICK : SESSIONS);
  const texts = quick ? QUICK : TEXTS;
  await fillLists(bench, ledger, { sessions, texts });
  const database = await openDatabase(bench, ledger);
  const sqlMs = await timeOf(bench, () => byIds(ledger));
  const lists: Record<string, Findings> = {};
  for (const [name, of] of Object.entries(LISTS)) {
    bench.progress(name);
    const pages = { first: "", deep: await deepToken(ledger, of, Math.floor(sessions * 0.9)) };
    lists[name] = {};
    for (const [place, pageToken] of Object.entries(pages)) {
      const took = await timeOf(bench, () => list(client, of, pageToken));
      const over = rounded(took.p50Ms / sqlMs.p50Ms);
      lists[name] = { ...lists[name], [place]: { ...took, "list / SQL": over } };
    }
    lists[name] = { ...lists[name], plan: await planOf(database, of) };
  }
  const searches: Record<string, Latency> = {};
  for (const [name, query] of Object.entries(SEARCHES))
    searches[name] = await timeOf(bench, () => client.unary(searchTexts, { query }, CALL));
  return {
    load: { sessions, texts },
    "SQL of 100 sessions by their ids": sqlMs,
    lists,
    searches,
    pushes: await neighbours(bench, ledger, client),
  };
}

const list = (client: RpcClient, { filter, orderBy }: Listing, pageToken: string) =>
  client.unary(
    listSessions,
    { ...filter, ...(orderBy === undefined ? {} : { orderBy }), pageToken },
    CALL,
  );

async function timeOf(bench: Bench, ask: () => Promise<unknown>): Promise<Latency> {
  const tookMs: number[] = [];
  const asks = bench.options.quick ? ASKS_QUICK : ASKS;
  for (let at = 0; at <= asks; at += 1) {
    bench.signal.throwIfAborted();
    const beganMs = performance.now();
    await ask();
    if (at > 0) tookMs.push(performance.now() - beganMs); // The first warms up.
  }
  return latencyOf(tookMs);
}

export async function fillLists(
  bench: Bench,
  { sql: run }: Ledger,
  { sessions, texts }: { readonly sessions: number; readonly texts: number },
): Promise<void> {
  bench.progress(`storing ${sessions} sessions and ${texts} texts`);
  await run`
    insert into sessions (id, name, project_id, phase, labels, parent_session_id, open_run_id,
      waiting_since, created_at, updated_at, last_activity_at, active_at)
    select 'bench-' || n, 'name ' || n, case when n % 2 = 0 then 'half' else 'p' || n % 100 end,
      case when n % 300000 = 7 then 'Creating' when n % 100 = 0 then 'Failed' else 'Completed' end,
      json_build_object('team', (n % 50)::text, 'number', n::text)::text,
      case when n % 1000 = 7 then 'bench-7' end, case when n % 200 = 1 then 'run' end,
      case when n % 500 = 1 then now() - n * interval '1 s' end, now() - n * interval '1 s', now(),
      now() - (n::bigint * 7919 % ${sessions}) * interval '1 s',
      now() - (n::bigint * 7919 % ${sessions}) * interval '1 s'
    from generate_series(1, ${sessions}) n`;
  await run`
    insert into session_texts (session_id, digest, part, stream, seq, event_type, created_at, role, text, words)
    select 'bench-' || n, md5(n::text)::uuid, 0, 'messages', 1, 'user', now() - n * interval '1 s', 'user', t,
      to_tsvector('english', t)
    from (select n, 'everywhere rare' || n || ' w' || n % 110 || ' w' || n % 7 as t
      from generate_series(1, ${texts}) n) made`;
  await run`vacuum analyze sessions`;
  await run`vacuum analyze session_texts`;
}

async function byIds({ sql: run }: Ledger): Promise<void> {
  const ids = Array.from({ length: 100 }, (_, n) => `bench-${n * 7 + 1}`);
  await run`select * from sessions where id = any (${ids})`;
}

const NAMES = {
  newest: "created_at",
  activity: "active_at",
  waiting: "waiting_since",
  asking: "run_ended_at",
} as const;

/** The token behind so many sessions of the order, or of those that wait. */
async function deepToken({ sql: run }: Ledger, { order = "newest" }: Listing, sessions: number) {
  const time = run(NAMES[order]);
  const direction = order === "waiting" ? run`asc` : run`desc`;
  const [place] = await run`
    select id, (extract(epoch from ${time}) * 1000000)::bigint::text as micros from sessions
    where ${time} is not null order by ${time} ${direction}, id ${direction}
    offset ${order === "waiting" ? Math.floor(sessions / 1_000) : sessions} limit 1`;
  return `${order}.${String(place?.["micros"])}.10000+.${String(place?.["id"])}`;
}

/** The way to the sessions: the scans of the plan. */
async function planOf(database: Database, { filter = {}, order = "newest" }: Listing) {
  const scope = { projectId: undefined, sessionId: undefined };
  const page = pageStatement({ from: 0, size: 100, scope, filter, order });
  const lines = await database.run(sql`explain ${page}`, { prepare: false });
  return lines.flatMap(
    (line) => /\w[\w ]* Scan .*on sessions/.exec(String(line["QUERY PLAN"])) ?? [],
  );
}

async function openDatabase(bench: Bench, { databaseUrl }: Ledger): Promise<Database> {
  const limits = { connectionsMax: 1, statementTimeoutMs: 60_000, lockTimeoutMs: 5_000 };
  const database = createDatabase({ url: () => databaseUrl, ...limits });
  await database.start();
  bench.undo.defer(() => database.stop());
  return database;
}

/** Pushes at a steady pace, alone and while one viewer asks for everything at once. */
async function neighbours(bench: Bench, ledger: Ledger, client: RpcClient): Promise<Findings> {
  const viewer = new RpcClient(ledger.address);
  bench.undo.defer(() => viewer.close());
  const seconds = bench.options.seconds ?? (bench.options.quick ? 1 : SECONDS);
  const alone = await pushes(bench, client, seconds);
  const asking = new AbortController();
  let answers = 0;
  let refusals = 0;
  const asks = [
    ...Object.values(LISTS).map((of) => () => list(viewer, of, "")),
    ...Object.values(SEARCHES).map((query) => () => viewer.unary(searchTexts, { query }, CALL)),
  ].map(async (ask) => {
    while (!asking.signal.aborted) {
      await ask().then(
        () => (answers += 1),
        () => (refusals += 1),
      );
    }
  });
  const beside = await pushes(bench, client, seconds);
  asking.abort();
  await Promise.all(asks);
  return {
    load: { lanes: LANES, perSecond: LANES * PACE, viewerCalls: asks.length },
    alone,
    "beside the viewer": { ...beside, answers, refusals },
    "p99 beside / alone": rounded(beside.push.p99Ms / alone.push.p99Ms),
  };
}

/** The times of pushes, and of a text until search finds it. */
async function pushes(bench: Bench, client: RpcClient, seconds: number) {
  const untilMs = performance.now() + seconds * 1_000;
  const tookMs: number[] = [];
  const lane = async (): Promise<void> => {
    const sessionId = randomUUID();
    for (let at = 0; performance.now() < untilMs; at += 1) {
      bench.signal.throwIfAborted();
      const beganMs = performance.now();
      const row = { sessionId, eventType: "user", payload: `everywhere ${sessionId} ${at}` };
      await client.unary(pushSessionMessage, row, CALL);
      const passedMs = performance.now() - beganMs;
      tookMs.push(passedMs);
      await sleep(Math.max(0, 1_000 / PACE - passedMs));
    }
  };
  const foundMs: number[] = [];
  const search = async (): Promise<void> => {
    while (performance.now() < untilMs) {
      const beganMs = performance.now();
      const word = `word${randomUUID().replaceAll("-", "")}`;
      await client.unary(
        pushSessionMessage,
        { sessionId: word, eventType: "user", payload: word },
        CALL,
      );
      while ((await client.unary(searchTexts, { query: word }, CALL)).items.length === 0) {
        bench.signal.throwIfAborted();
        await sleep(100);
      }
      foundMs.push(performance.now() - beganMs);
    }
  };
  await Promise.all([search(), ...Array.from({ length: LANES }, lane)]);
  return { push: latencyOf(tookMs), found: latencyOf(foundMs) };
}
