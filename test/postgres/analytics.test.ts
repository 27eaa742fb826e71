/** The views of analytics, from rows in real tables; and the role that may read nothing else. */
import { readFileSync } from "node:fs";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { forgetTexts } from "../../src/search/index-store.ts";
import { reindexTexts } from "../../src/search/reindex.ts";
import { eraseSession } from "../../src/maintenance/erase.ts";
import { forkSession } from "../../src/store/fork.ts";
import { migrateDown, migrateUp } from "../../src/store/migrate.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { createDatabase } from "../support/database.ts";
import { type NewRow, useLedger } from "../support/ledger.ts";
import {
  event,
  linesFor,
  madeSession,
  push,
  run,
  said,
  spoken,
  textIndex,
} from "../support/texts.ts";

const ledger = await useLedger();
const { database } = ledger;

const derive = () => textIndex(database).pass();

/** A second after the row before it. */
let micros = 1_780_000_000_000_000n;
function later(row: NewRow, ms = 1_000): NewRow {
  micros += BigInt(ms) * 1_000n;
  return { ...row, createdAtMicros: micros };
}

function called(id: string, name: string) {
  return [
    event({ type: "TOOL_CALL_START", toolCallId: id, toolCallName: name }),
    event({ type: "TOOL_CALL_ARGS", toolCallId: id, delta: "{}" }),
    event({ type: "TOOL_CALL_END", toolCallId: id }),
  ];
}
const answer = (id: string, more = {}) =>
  event({ type: "TOOL_CALL_RESULT", toolCallId: id, messageId: `m${id}`, content: "1", ...more });

const started = (runId: string) => event({ type: "RUN_STARTED", threadId: "t", runId });
const finished = (runId: string, more = {}) =>
  event({ type: "RUN_FINISHED", threadId: "t", runId, ...more });

function runsOf(sessionId: string) {
  return database.run(sql`
    select * from analytics.runs where session_id = ${sessionId} order by run_seq`);
}

const USAGE = [
  { model: "large", inputTokens: 100, outputTokens: 20, cachedInputTokens: 60, cost: 0.25 },
  { model: "small", inputTokens: 10, outputTokens: 2, reasoningTokens: 1 },
];

describe("the views of runs", () => {
  test("have their times, outcome, tokens, cost, tools and models, and merged rows by their events", async () => {
    await madeSession(database, "whole", "alpha");
    const rows = [
      started("r1"),
      ...called("c1", "look"),
      ...called("c2", "ask"),
      answer("c2", { error: "no" }),
      answer("c1"),
      ...spoken("m1", "hello"),
      finished("r1", { usage: USAGE }),
    ].map((row) => later(row));
    const merged = rows.map((row) =>
      row.payload.includes('"hel"') ? { ...row, eventCount: 40 } : row,
    );
    await push(database, { sessionId: "whole" }, merged);
    await derive();
    const [view] = await runsOf("whole");
    expect(view).toMatchObject({
      project_id: "alpha",
      run_id: "r1",
      run_seq: "1",
      outcome: "finished",
      duration_ms: 13_000,
      time_to_first_token_ms: 10_000,
      tokens_in: "110",
      tokens_out: "22",
      cached_tokens_in: "60",
      reasoning_tokens_out: "1",
      cost: 0.25,
      tool_calls: "2",
      tool_failures: "1",
      model: "large, small",
      events: "53",
    });
    const tools = await database.run(
      sql`select * from analytics.tools where project_id = 'alpha' order by tool`,
    );
    const one = { project_id: "alpha", calls: "1", answered: "1" };
    expect(tools).toEqual([
      { ...one, tool: "ask", failures: "1", p50_ms: 3_000, p95_ms: 3_000 },
      { ...one, tool: "look", failures: "0", p50_ms: 7_000, p95_ms: 7_000 },
    ]);
    const daily = await database.run(
      sql`select model, runs, sessions, tokens_in, cost from analytics.daily_usage
        where project_id = 'alpha' order by model`,
    );
    expect(daily).toEqual([
      { model: "large", runs: "1", sessions: "1", tokens_in: "100", cost: 0.25 },
      { model: "small", runs: "1", sessions: "1", tokens_in: "10", cost: null },
    ]);
    expect(
      await database.run(sql`
        select messages, events, runs, errors, tool_calls, tool_failures, tokens_in, tokens_out, cost,
          first_activity_at <= last_activity_at as ordered
        from analytics.sessions where session_id = 'whole'`),
    ).toEqual([
      {
        messages: "0",
        events: "53",
        runs: "1",
        errors: "0",
        tool_calls: "2",
        tool_failures: "1",
        tokens_in: "110",
        tokens_out: "22",
        cost: 0.25,
        ordered: true,
      },
    ]);
  });

  test("tell every outcome, in one session, and each session has its own run of one id", async () => {
    const runs = [
      [started("lost")],
      [started("same"), finished("same")],
      [
        started("asks"),
        finished("asks", {
          outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] },
        }),
      ],
      [started("stopped"), finished("stopped", { outcome: { type: "cancelled" } })],
      [started("broken"), event({ type: "RUN_ERROR", message: "x" })],
      [started("open"), ...called("c", "wait")],
    ];
    await push(database, { sessionId: "outcomes" }, runs.flat());
    // Parallel to the open run, in another session.
    await push(database, { sessionId: "outcomes-2" }, runs[1] ?? []);
    await derive();
    const outcomes = (await runsOf("outcomes")).map((row) => [
      row["run_id"],
      row["outcome"],
      row["ended_at"] === null,
    ]);
    expect(outcomes).toEqual([
      ["lost", "stalled", true],
      ["same", "finished", false],
      ["asks", "interrupted", false],
      ["stopped", "cancelled", false],
      ["broken", "error", false],
      ["open", "running", true],
    ]);
    expect(await runsOf("outcomes-2")).toMatchObject([
      { run_id: "same", tokens_in: null, model: null },
    ]);
    const [tool] = await database.run(sql`select * from analytics.tools where tool = 'wait'`);
    expect(tool).toMatchObject({ calls: "1", answered: "0", p50_ms: null });
    const [session] = await database.run(
      sql`select runs, errors from analytics.sessions where session_id = 'outcomes'`,
    );
    expect(session).toEqual({ runs: "6", errors: "1" });
  });

  // A person may answer after hours; the unit has closed the fold by then.
  test("continue a run that was silent for long, on the same instance and on another one", async () => {
    let nowMs = 0;
    const clock = { monotonicMs: () => nowMs };
    for (const isOther of [false, true]) {
      await database.run(sql`delete from leases`);
      const sessionId = `silent-${isOther}`;
      const unit = textIndex(database, { clock });
      const rows = [
        started("r"),
        ...called("c1", "approve"),
        ...called("c2", "look"),
        answer("c2"),
      ];
      await push(
        database,
        { sessionId },
        rows.map((row) => later(row)),
      );
      await unit.pass();
      nowMs += 60_000;
      await unit.pass();
      expect(await runsOf(sessionId)).toMatchObject([{ outcome: "running", events: "8" }]);
      const [stored] = await database.run(
        sql`select event_seq from indexed_sessions where session_id = ${sessionId}`,
      );
      expect(stored).toEqual({ event_seq: "8" });
      const next = isOther ? textIndex(database, { clock, holder: "other" }) : unit;
      if (isOther) await unit.stop();
      if (isOther) await database.run(sql`delete from leases`);
      await push(
        database,
        { sessionId },
        [answer("c1")].map((row) => later(row, 60_000)),
      );
      await push(database, { sessionId }, [later(finished("r", { usage: USAGE }))]);
      await next.pass();
      expect(await runsOf(sessionId)).toMatchObject([
        {
          outcome: "finished",
          events: "10",
          duration_ms: 68_000,
          tokens_in: "110",
          tool_calls: "2",
        },
      ]);
      const [call] = await database.run(
        sql`select duration_ms from analytics.tool_calls where session_id = ${sessionId} and tool = 'approve'`,
      );
      expect(call).toEqual({ duration_ms: 66_000 });
      await next.stop();
    }
  });

  test("are the same after another instance has begun inside the run, and after reindex", async () => {
    await database.run(sql`delete from leases`);
    const rows = [
      started("r"),
      ...called("c", "look"),
      answer("c"),
      ...spoken("m", "hi"),
      finished("r", { usage: USAGE }),
    ];
    await push(database, { sessionId: "moved" }, rows.slice(0, 3));
    await derive();
    await push(database, { sessionId: "moved" }, rows.slice(3, 6));
    await derive();
    await push(database, { sessionId: "moved" }, rows.slice(6));
    await derive();
    const all = () =>
      database.run(
        sql`select to_json(r) as run from analytics.runs r order by session_id, run_seq`,
      );
    const calls = () =>
      database.run(
        sql`select to_json(c) as call from analytics.tool_calls c order by session_id, seq`,
      );
    const before = [await all(), await calls()];
    expect(before.flat().length).toBeGreaterThan(10);
    await forgetTexts(database, undefined);
    expect(await all()).toEqual([]);
    await database.run(sql`delete from leases`);
    const options = {
      sessionId: undefined,
      language: "english",
      signal: new AbortController().signal,
    };
    expect(await reindexTexts(database, options)).toMatchObject({
      runs: before[0]?.length,
      isLeft: false,
    });
    expect([await all(), await calls()]).toEqual(before);
  });

  test("hold absurd values, and no event outside of a run", async () => {
    await push(database, { sessionId: "absurd" }, [
      ...called("c0", "outside"),
      started("r"),
      ...called("c1", `nul\u0000${"x".repeat(5_000)}`),
      event({ type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "twice" }),
      finished("r", {
        usage: [
          { model: 7, inputTokens: -1, outputTokens: Number.MAX_SAFE_INTEGER, cost: "free" },
          "none",
          { model: "m\u0000", inputTokens: 1.5 },
        ],
      }),
    ]);
    await derive();
    expect(await runsOf("absurd")).toMatchObject([
      { tokens_in: null, tokens_out: "1000000000000", cost: null, tool_calls: "1", model: "m " },
    ]);
    await deleteSession(database, "absurd");
  });
});

test("a session leaves the views with its deletion, and the tables with its erasure", async () => {
  await push(database, { sessionId: "gone" }, run("r", ...called("c", "vanish"), answer("c")));
  await derive();
  expect(await runsOf("gone")).toHaveLength(1);
  await deleteSession(database, "gone");
  for (const view of ["runs", "tool_calls", "sessions"])
    expect(
      await database.run(sql`select from analytics.${sql.raw(view)} where session_id = 'gone'`),
    ).toEqual([]);
  expect(await database.run(sql`select from analytics.tools where tool = 'vanish'`)).toEqual([]);
  const call = { marked: () => undefined, counted: () => undefined };
  await eraseSession(database, "gone", { ...call, signal: new AbortController().signal });
  for (const table of ["session_runs", "session_tool_calls"])
    expect(
      await database.run(sql`select from ${sql.raw(table)} where session_id = 'gone'`),
    ).toEqual([]);
});

test("runs that a fork copied count in the parent, and its own runs in the fork", async () => {
  const rows = run("r1", ...called("c", "copied"), answer("c"));
  await push(database, { sessionId: "parent" }, rows);
  const request = { sessionId: "parent", forkId: "child", atSeq: BigInt(rows.length) };
  const none = { atMessageSeq: undefined, createdByUserId: undefined };
  await forkSession(database, { ...request, ...none, rowsMax: 100, bytesMax: 100_000 });
  await push(database, { sessionId: "child" }, run("r2", ...called("c", "own"), answer("c")));
  await database.run(sql`delete from leases`);
  await derive();
  expect(await runsOf("parent")).toMatchObject([{ run_id: "r1", tool_calls: "1" }]);
  expect(await runsOf("child")).toMatchObject([{ run_id: "r2", tool_calls: "1" }]);
  const calls = await database.run(
    sql`select session_id, tool from analytics.tool_calls where tool in ('copied', 'own') order by tool`,
  );
  expect(calls).toEqual([
    { session_id: "parent", tool: "copied" },
    { session_id: "child", tool: "own" },
  ]);
});

test("with SEARCH_LANGUAGE=off runs are derived without texts, and with a language again the texts follow", async () => {
  await database.run(sql`delete from leases`);
  const off = textIndex(database, { language: undefined });
  const of = { sessionId: "off" };
  await push(database, { ...of, stream: "messages" }, [said("user", "a saola")]);
  await push(database, of, run("r", ...spoken("m", "saola")));
  await off.pass();
  await off.stop();
  expect(await runsOf("off")).toHaveLength(1);
  expect(await linesFor(database, "saola")).toEqual([]);
  const on = textIndex(database);
  await on.pass();
  await on.stop();
  expect(await linesFor(database, "saola")).toHaveLength(2);
  expect(await runsOf("off")).toHaveLength(1);
});

describe("the role of docs/analytics.md", () => {
  test("reads the views, and PostgreSQL refuses it everything else", async () => {
    const blocks = readFileSync("docs/analytics.md", "utf8").matchAll(/```sql\n([^]*?)```/g);
    const [statements = "", lastDays = ""] = [...blocks].map(([, block = ""]) => block);
    const owner = postgres(ledger.url, { max: 1, onnotice: () => undefined });
    const url = new URL(ledger.url);
    url.username = "ledger_reader";
    url.password = "change-me";
    try {
      await owner.unsafe(statements);
      const reader = postgres(url.href, { max: 1, onnotice: () => undefined });
      try {
        for (const view of ["version", "sessions", "runs", "tool_calls", "tools", "daily_usage"])
          await reader.unsafe(`select * from analytics.${view}`);
        await reader.unsafe(lastDays);
        expect(await reader`select version from analytics.version`).toEqual([{ version: 1 }]);
        expect(await reader`select * from analytics.tools_since('2026-01-01')`).not.toEqual([]);
        const tables = await owner`
          select c.oid::regclass::text as name from pg_class c
          where relkind in ('r', 'p') and relnamespace::regnamespace::text in ('public', 'drizzle')`;
        expect(tables.length).toBeGreaterThan(10);
        const refused = [
          ...tables.map(({ name }) => `select * from ${String(name)}`),
          "select ledger_erase_rows('s', 'events', 1, null, false, 1, 1)",
          "select ledger_open_stream('s', 0, true, true)",
          "delete from analytics.sessions",
          "update analytics.version set version = 2",
          "create table analytics.mine (a int)",
          "create view analytics.mine as select 1",
        ];
        for (const statement of refused)
          await expect(reader.unsafe(statement)).rejects.toMatchObject({
            // A view with a join has no rows to write.
            code: expect.stringMatching(/^(?:42501|55000)$/),
          });
        // A function in a query does not see the rows that the view leaves out.
        await deleteSession(database, "outcomes-2");
        await reader.unsafe(`create function pg_temp.told(id text) returns bool language plpgsql cost 0.0001
          as $$ begin raise exception 'leaked %', id; end $$`);
        expect(
          await reader.unsafe(
            "select from analytics.runs where session_id = 'outcomes-2' and pg_temp.told(session_id)",
          ),
        ).toEqual([]);
      } finally {
        await reader.end();
      }
    } finally {
      await owner.unsafe("drop owned by ledger_reader; drop role ledger_reader");
      await owner.end();
    }
  });

  test("finds comments on every view, and in the page every view and column", async () => {
    const views = await database.run(sql`
      select relname as name, obj_description(c.oid) as comment,
        (select json_agg(attname::text) from pg_attribute where attrelid = c.oid and attnum > 0) as columns
      from pg_class c where relnamespace = 'analytics'::regnamespace and relkind = 'v' order by relname`);
    expect(views.length).toBe(6);
    const page = readFileSync("docs/analytics.md", "utf8");
    for (const { name, comment, columns } of views) {
      expect(String(comment).length).toBeGreaterThan(20);
      if (name === "version") continue;
      const line =
        page.split("\n").find((text) => text.startsWith(`| \`${String(name)}\` |`)) ?? "";
      const cells = line.split("|").at(-2) ?? "";
      expect([...cells.matchAll(/`(\w+)`/g)].map(([, column]) => column)).toEqual(columns);
    }
  });
});

test("two ledgers of one database have views of their own", async () => {
  const created = await createDatabase();
  const url = `${created.url}?search_path=${encodeURIComponent('"second"')}`;
  await migrateUp(created.url);
  await migrateUp(url, { schema: "second" });
  const client = postgres(created.url, { max: 1, onnotice: () => undefined });
  await client`insert into second.sessions (id, created_at, updated_at) values ('s', now(), now())`;
  expect(await client`select session_id from second_analytics.sessions`).toEqual([
    { session_id: "s" },
  ]);
  expect(await client`select session_id from analytics.sessions`).toEqual([]);
  let { applied } = await migrateDown(url, { schema: "second" });
  while (applied.length > 0) ({ applied } = await migrateDown(url, { schema: "second" }));
  const left = await client`select nspname from pg_namespace where nspname like '%analytics'`;
  expect(left).toEqual([{ nspname: "analytics" }]);
  await client.end();
  await created.drop();
});
