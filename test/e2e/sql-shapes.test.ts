/**
 * No statement of the store has a shape that a sharded PostgreSQL refuses (docs/decisions/083). A service and
 * commands run over a proxy that reads their statements; each call and each route is made once, and the
 * bodies of the functions that the statements call are read from the database.
 */
import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { walkStatement } from "../../src/search/find.ts";
import { appendNothing } from "../../src/store/append.ts";
import { createDatabase } from "../../src/store/database.ts";
import { createReader } from "../../src/store/reader.ts";
import { SessionOrder, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { EVERY_CALL, EveryCall } from "../support/every-call.ts";
import { fillEveryKind } from "../support/every-session.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { runCommand, startService } from "../support/service-process.ts";
import { shapesOf, shapesOfBody, startStatementTap } from "../support/sql-shapes.ts";
import { claim, emit, finish, say } from "../support/turns.ts";

const QUESTION: Parameters<typeof walkStatement>[0] = {
  query: "first",
  language: "english",
  scope: { projectId: undefined, sessionId: undefined },
  projectId: "p1",
  agentId: "a1",
  labels: { team: "x" },
  sessionId: "",
  role: "",
  eventType: "",
  afterMicros: undefined,
  beforeMicros: undefined,
  isBestFirst: false,
  textsMax: 10,
  cursor: undefined,
};

const ends: (() => Promise<unknown> | void)[] = [];
afterAll(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

test.each([
  ["volatile", "update sessions set changed_at = clock_timestamp() where id = $1"],
  ["volatile", "delete from session_events where session_id = $1 and random() < 0.5"],
  ["stable", "update sessions set deleted_at = coalesce(deleted_at, now()) where id = $1"],
  [
    "stable",
    "update sessions set x = case when at > active_at + interval '10 s' then 1 end where id = $1",
  ],
  [
    "correlated",
    "select (select 1 from session_events where session_id = s.id) from sessions s where s.id = $1",
  ],
  ["empty", "select count(*) from (select from sessions limit 10) few"],
  ["returning", "update sessions set hold = $2 where id = $1 returning id, extract(epoch from at)"],
  ["returning", "insert into sessions (id) values ($1) returning id, created_at::text"],
  [
    "returning",
    "with a as (delete from session_events where session_id = $1 returning 1) select * from a",
  ],
  ["recordset", "select * from json_to_recordset($1) as w(s text) join sessions on id = w.s"],
  ["recordset", "select * from sessions s, unnest($1::text[]) w(id) where s.id = w.id"],
  ["lateral", "select * from sessions s left join lateral (select 1 limit 1) x on true"],
  ["lock", "select 1 from sessions where id = any ($1) for no key update"],
  ["lock", "insert into sessions (id, created_at) values ($1, (select at from made))"],
  ["function", "select ledger_forget_texts($1, $2, $3) from sessions"],
] as const)("refuses the shape %s in: %s", (shape, statement) => {
  expect(shapesOf(statement)).toEqual([shape]);
});

test("accepts statements of one session, and plain joins", () => {
  for (const statement of [
    "update sessions set changed_at = statement_timestamp() where id = $1 returning id, sessions.hold",
    "select * from session_events e left join sessions s on s.id = e.session_id order by seq limit $1",
    "select * from sessions where id = any (array(select json_array_elements_text($1::json)))",
    "select clock_timestamp()",
    "insert into leases values ($1, clock_timestamp())",
  ])
    expect(shapesOf(statement)).toEqual([]);
});

const APPEND = "a batch of one session takes another branch";

/** Functions with a shape, and why a sharded PostgreSQL never meets it. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  "ledger_append_chained_pushes: lock": APPEND,
  "ledger_append_pushes: lock": APPEND,
};

test("no statement that the service or a command sends has a shape that a sharded PostgreSQL refuses", async () => {
  const ledger = await openDatabase();
  ends.push(() => ledger.stop());
  const url = new URL(ledger.url);
  const tap = await startStatementTap({ host: url.hostname, port: Number(url.port) });
  ends.push(() => tap.stop());
  url.host = `127.0.0.1:${tap.port}`;
  await makeEveryStatement(url.href, ledger);
  expect(await refusedIn(ledger, tap.statements)).toEqual(Object.keys(EXCEPTIONS));
});

async function makeEveryStatement(databaseUrl: string, { url, sql }: OpenDatabase): Promise<void> {
  const env = { DATABASE_URL: databaseUrl };
  const service = await startService({ databaseUrl });
  ends.push(() => service.stop());
  const client = new RpcClient(service.grpcAddress);
  ends.push(() => client.close());
  await fillEveryKind(client, url);
  await say(client, "taken", "first");
  await claim(client, { sessionId: "taken", runId: "r1" });
  await claim(client, { sessionId: "taken", runId: "r1" });
  await claim(client, { sessionId: "taken", runId: "r2", producerEpoch: 2n });
  await finish(client, "taken", "r2");
  await emit(client, "taken", { type: "RUN_STARTED", threadId: "taken", runId: "r3" });
  await emit(client, "taken", { type: "RUN_ERROR", message: "failed" });
  const { listSessions, searchTexts, listSessionEvents, watchEvents, watchMessages } =
    SessionService.method;
  for (const orderBy of [SessionOrder.UNSPECIFIED, SessionOrder.ACTIVITY])
    await client.unary(listSessions, { size: 2, orderBy, failures: true, query: "t" });
  await client.unary(listSessions, { labels: { team: "infra" }, size: 1 });
  await expect
    .poll(async () => (await client.unary(searchTexts, { query: "first" })).items.length)
    .toBeGreaterThan(0);
  await client.unary(listSessionEvents, { sessionId: "taken", eventTypes: ["RUN_STARTED"] });
  for await (const _ of client.serverStream(watchEvents, { startTime: {} })) break;
  for await (const _ of client.serverStream(watchMessages, { startTime: {} })) break;
  await askStore(databaseUrl);
  const dumped = await runCommand(["dump"], { env });
  const calls = new EveryCall(service);
  ends.push(() => calls[Symbol.dispose]());
  for (const destroys of [false, true])
    for (const call of EVERY_CALL.filter((one) => one.destroys === destroys))
      await calls.ask(call, destroys && call.name !== "EraseSession" ? "known" : "taken", []);
  for (const args of [
    ["digest"],
    ["digest", "Upper"],
    ["verify"],
    ["verify", "Upper"],
    ["reindex", "Upper"],
    ["reindex"],
  ])
    expect(await runCommand(args, { env })).toMatchObject({ exitCode: 0 });
  await sql`update session_events set recorded_at = now() - interval '1 day'`;
  for (const args of [["--dry-run"], []])
    expect(await runCommand(["retention", "--older-than", "1m", ...args], { env })).toMatchObject({
      exitCode: 0,
    });
  expect(await runCommand(["restore", "-"], { env, input: dumped.stdout })).toMatchObject({
    exitCode: 1,
  });
}

/** What is asked after a failover, and of a question with more matches than the ledger has. */
async function askStore(databaseUrl: string): Promise<void> {
  const limits = { connectionsMax: 1, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
  const database = createDatabase({ url: () => databaseUrl, ...limits });
  await database.start();
  const row = { seq: 1n, id: randomUUID() };
  for (const stream of ["messages", "events"] as const)
    await createReader(database).lostOf([{ stream, sessionId: "taken", head: 1n, row }]);
  await database.run(walkStatement(QUESTION));
  await appendNothing(database, { hasChains: true });
  await database.stop();
}

async function refusedIn(
  { sql }: OpenDatabase,
  statements: ReadonlySet<string>,
): Promise<string[]> {
  const functions = await sql<{ name: string; body: string; settings: string[] | null }[]>`
    select proname as name, prosrc as body, proconfig as settings from pg_proc where proname ~ '^ledger_'`;
  expect(statements.size).toBeGreaterThan(100);
  const refused = [...statements].flatMap((statement) => named(statement, shapesOf(statement)));
  const sent = [...statements].join("\n");
  const called = functions.filter(({ name }) => sent.includes(`${name}(`));
  for (const { name, body, settings } of called) {
    const shapes = [...(settings === null ? [] : ["setting"]), ...shapesOfBody(body)];
    refused.push(...named(name, shapes));
  }
  return refused.toSorted();
}

function named(what: string, shapes: readonly string[]): string[] {
  return shapes.length === 0
    ? []
    : [`${what.replaceAll(/\s+/g, " ").trim()}: ${shapes.join(", ")}`];
}
