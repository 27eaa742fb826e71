/**
 * A ledger as a fixture: the schema and the rows of its tables, and the answers of every call that reads.
 * test/support/make-ledger-fixture.ts makes the files of test/fixtures, and test/e2e/upgrade.test.ts
 * upgrades them.
 */
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  toJson,
} from "@bufbuild/protobuf";
import postgres from "postgres";
import { z } from "zod";
import { SearchOrder } from "@session-ledger/proto/ambient/v1/search_pb";
import { SessionOrder, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { dump } from "../../src/maintenance/dump.ts";
import { verify } from "../../src/maintenance/verify.ts";
import { createDatabase } from "../../src/store/database.ts";
import { RpcClient } from "./grpc-client.ts";
import { type ServiceOptions, type ServiceProcess, startService } from "./service-process.ts";

const { method } = SessionService;

export const FIXTURE = {
  rows: new URL("../fixtures/ledger-0000.sql.gz", import.meta.url),
  answers: new URL("../fixtures/ledger-0000.answers.json.br", import.meta.url),
};

/** Of its service: the cancelled run has ended and the open one is stale, at any later time. */
const SETTINGS = { CANCEL_GRACE: "100ms", RUN_STALE_AFTER: "1s" };
export const ADMIN_TOKEN = "o".repeat(40);

/** The service of a fixture; one that asks for tokens leaves its runs open. */
export function startOnLedger(
  of: Pick<ServiceOptions, "databaseUrl" | "embedded">,
  { hasTokens = false } = {},
): Promise<ServiceProcess> {
  const tokens = [{ id: "ops", token: ADMIN_TOKEN, roles: ["admin"] }];
  const env = hasTokens ? { AUTH_TOKENS: JSON.stringify({ tokens }) } : SETTINGS;
  return startService({ ...of, env });
}

/** A connection that writes times of PostgreSQL the same everywhere. */
export function fixtureSql(url: string): postgres.Sql {
  return postgres(url, {
    max: 1,
    onnotice: () => undefined,
    connection: { TimeZone: "UTC" },
  });
}

/** Everything that migrations make, as PostgreSQL describes it. */
export async function schemaOf(sql: postgres.Sql): Promise<unknown> {
  const ours = sql`('public', 'analytics')`;
  const spaces = sql`(select oid from pg_namespace where nspname in ${ours})`;
  const columns = await sql`
    select table_schema, table_name, column_name, data_type, is_nullable, column_default, datetime_precision
    from information_schema.columns where table_schema in ${ours}
    order by table_schema, table_name, ordinal_position`;
  const indexes = await sql`
    select indexdef from pg_indexes where schemaname in ${ours} order by indexdef`;
  const constraints = await sql`
    select conrelid::regclass::text as on, pg_get_constraintdef(oid) as is from pg_constraint
    where connamespace in ${spaces} order by 1, 2`;
  const functions = await sql`
    select pg_get_functiondef(oid) as is from pg_proc where pronamespace in ${spaces} order by 1`;
  const relations = await sql`
    select relnamespace::regnamespace::text as space, relname, reloptions,
      case when relkind = 'v' then pg_get_viewdef(oid) end as view, obj_description(oid, 'pg_class') as comment
    from pg_class where relnamespace in ${spaces} order by 1, 2`;
  const made = { columns, indexes, constraints, functions, relations };
  return JSON.parse(JSON.stringify(made));
}

/** The rows of all tables in the form of `pg_dump --data-only`, sorted. Leases pass by themselves. */
export async function rowsOf(sql: postgres.Sql): Promise<string> {
  const tables = await sql<{ readonly name: string; readonly columns: string }[]>`
    select table_name as name, string_agg(quote_ident(column_name), ', ' order by ordinal_position) as columns
    from information_schema.columns where table_schema = 'public' and table_name <> 'leases'
    group by 1 order by 1`;
  let all = "";
  for (const { name, columns } of tables) {
    const place = `${name} (${columns})`;
    const rows = await text(await sql.unsafe(`copy ${place} to stdout`).readable());
    const lines = rows.split(/(?<=\n)/).toSorted();
    all += `COPY ${place} FROM stdin;\n${lines.join("")}\\.\n\n`;
  }
  return all;
}

export async function storeRows(sql: postgres.Sql, rows: string): Promise<void> {
  for (const [, copy = "", lines = ""] of rows.matchAll(/^(COPY .+);\n([^]*?)^\\\.$/gm))
    await pipeline(Readable.from([lines]), await sql.unsafe(copy).writable());
}

const rowSchema = z.record(z.string(), z.unknown());

/** The answers of every call that reads, by call and request. */
export async function everyAnswer(
  { grpcAddress, httpAddress }: Pick<ServiceProcess, "grpcAddress" | "httpAddress">,
  databaseUrl: string,
): Promise<Readonly<Record<string, unknown>>> {
  const rpc = new RpcClient(grpcAddress);
  const answers: Record<string, unknown> = {};
  const keep = (called: DescMethod, request: MessageInitShape<DescMessage>, answer: unknown) => {
    const asked = toJson(called.input, create(called.input, request));
    answers[`${called.name} ${JSON.stringify(asked)}`] = answer;
  };
  const ask = async <I extends DescMessage, O extends DescMessage>(
    called: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> => {
    const answer = await rpc.unary(called, request);
    keep(called, request, toJson(called.output, answer));
    return answer;
  };
  const watch = async <I extends DescMessage, O extends DescMessage>(
    called: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): Promise<void> => {
    const frames: unknown[] = [];
    for await (const frame of rpc.serverStream(called, request)) {
      // A cursor of a feed names the server.
      const { cursor: _, ...row } = rowSchema.parse(toJson(called.output, frame));
      if (!("watchState" in row)) frames.push(row);
    }
    keep(called, request, frames);
  };

  const { items: sessions } = await ask(method.listSessions, { size: 1_000, failures: true });
  for (let page = 1; page * 4 < sessions.length + 4; page += 1)
    await ask(method.listSessions, { page, size: 4 });
  for (const filter of [
    { orderBy: SessionOrder.ACTIVITY },
    { waiting: true, orderBy: SessionOrder.WAITING },
    { running: true },
    { labels: { demo: "yes" } },
    { query: "Demo" },
    { projectId: "alpha" },
    { phase: "Failed" },
    { parentSessionId: "z:texts" },
  ])
    await ask(method.listSessions, filter);

  for (const { metadata, openRunId } of sessions) {
    const { id: sessionId = "" } = metadata ?? {};
    await ask(method.getSession, { id: sessionId });
    await ask(method.getTranscript, { sessionId });
    const { runs } = await ask(method.listRuns, { sessionId });
    const isMore = { hasMore: true, nextAfterSeq: 0n };
    for (let page = isMore; page.hasMore; )
      page = await ask(method.listSessionMessages, {
        sessionId,
        pageSize: 2,
        afterSeq: page.nextAfterSeq,
      });
    for (const expand of [false, true]) {
      for (let page = isMore; page.hasMore; )
        page = await ask(method.listSessionEvents, {
          sessionId,
          pageSize: 50,
          afterSeq: page.nextAfterSeq,
          expand,
        });
      await ask(method.listSessionEvents, { sessionId, pageSize: 20, descending: true, expand });
      await watch(method.watchSessionEvents, { sessionId, snapshotOnly: true, expand });
    }
    await watch(method.watchSessionMessages, { sessionId, snapshotOnly: true });
    // The answer to a join of an open run has no end.
    if (runs.length > 0 && openRunId === undefined)
      answers[`join ${sessionId}`] = await joined(
        `http://${httpAddress}/agui/sessions/${sessionId}`,
      );
  }

  await watch(method.watchEvents, { snapshotOnly: true });
  await watch(method.watchMessages, { snapshotOnly: true });
  for (const query of ["hello", "calculate", "approval", "مراكش", "批准"])
    for (const orderBy of [SearchOrder.UNSPECIFIED, SearchOrder.BEST])
      await ask(method.searchTexts, { query, orderBy });
  rpc.close();
  return { ...answers, ...(await answersOfCommands(databaseUrl)), ...(await views(databaseUrl)) };
}

async function joined(url: string): Promise<readonly unknown[]> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: "{}" });
  const events = (await answer.text()).match(/(?<=^data: ).+$/gm) ?? [];
  return events.map((event): unknown => JSON.parse(event));
}

async function answersOfCommands(url: string): Promise<Readonly<Record<string, unknown>>> {
  const limits = { connectionsMax: 1, statementTimeoutMs: 60_000, lockTimeoutMs: 60_000 };
  const database = createDatabase({ url: () => url, ...limits });
  await database.start();
  const call = { sessionIds: undefined, signal: new AbortController().signal };
  const [lines, verified]: unknown[][] = [[], []];
  const print = async (line: string): Promise<boolean> => lines?.push(JSON.parse(line)) !== 0;
  await dump(database, { ...call, print });
  await verify(database, { ...call, verified: async (one) => verified?.push(one) !== 0 });
  await database.stop();
  // The first line names the columns.
  return { dump: lines?.slice(1), verify: verified };
}

async function views(url: string): Promise<Readonly<Record<string, unknown>>> {
  const sql = fixtureSql(url);
  const answers: Record<string, unknown> = {};
  for (const view of ["version", "sessions", "runs", "tool_calls", "tools", "daily_usage"]) {
    const rows = await sql`
      select to_jsonb(v) as row from ${sql(`analytics.${view}`)} v order by to_jsonb(v)::text collate "C"`;
    answers[`analytics.${view}`] = rows.map(({ row }): unknown => row);
  }
  await sql.end();
  return answers;
}
