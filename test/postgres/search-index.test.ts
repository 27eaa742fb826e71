/** The unit that stores texts: one instance at a time, through failures and restarts. */
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { createMetrics } from "../../src/observability/metrics.ts";
import {
  activeStatement,
  askAgain,
  staleAfter,
  staleStatement,
  forgetTexts,
  sinceStatement,
} from "../../src/search/index-store.ts";
import { readTranscriptRows } from "../../src/store/pages.ts";
import { eventually } from "../support/eventually.ts";
import { useLedger } from "../support/ledger.ts";
import { event, linesFor, pageOf, push, run, said, spoken, textIndex } from "../support/texts.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const ledger = await useLedger();
const { database } = ledger;

let units = 0;

async function storesTexts(sessionId: string): Promise<boolean> {
  await push(database, { sessionId, stream: "messages" }, [said("user", `ibex ${sessionId}`)]);
  return eventually(async () => {
    const lines = await linesFor(database, "ibex", { sessionId });
    if (lines.length === 0) throw new Error("the text is not found");
    return true;
  });
}

describeUnitContract("the index of search", {
  create: () => textIndex(database, { holder: `unit${(units += 1)}` }),
  isOfUse: () => storesTexts(`unit-${units}`),
  async remains() {
    const held = await database.run(
      sql`select holder from leases where holder = ${`unit${units}`}`,
    );
    return held.map((row) => String(row["holder"]));
  },
  broken: {
    create: () => textIndex(database, { language: "klingon" }),
    failure: /SEARCH_LANGUAGE/,
  },
});

test("of two instances one stores texts, and the other takes over when it has stopped", async () => {
  let nowMs = 0;
  const named = (holder: string) =>
    textIndex(database, { holder, clock: { monotonicMs: () => nowMs } });
  const [one, two, three] = [named("one"), named("two"), named("three")];
  expect([await one.pass(), await two.pass()]).toEqual([true, false]);
  await one.start();
  await one.stop();
  expect(await two.pass()).toBe(false); // It asks again after ten seconds.
  nowMs += 10_000;
  expect([await two.pass(), await three.pass()]).toEqual([true, false]);
  await database.run(sql`update leases set held_until = now() - interval '1 second'`);
  nowMs += 10_000;
  expect([await three.pass(), await two.pass()]).toEqual([true, false]);
  await database.run(sql`delete from leases`);
});

test("a session that cannot be folded does not keep the others from their texts", async () => {
  await push(database, { sessionId: "a-broken" }, run("r", ...spoken("m", "gnu one")));
  await push(database, { sessionId: "b-whole" }, run("r", ...spoken("m", "gnu two")));
  const metrics = createMetrics();
  const reader = {
    transcriptRowsAfter: (page: Parameters<typeof readTranscriptRows>[1]) => {
      if (page.sessionId === "a-broken") throw new TypeError("a defect");
      return readTranscriptRows(database, page);
    },
  };
  const unit = textIndex(database, { metrics, reader });
  expect([await unit.pass(), await unit.pass()]).toEqual([true, true]);
  expect(await linesFor(database, "gnu")).toEqual(["b-whole events 2 assistant: [gnu] two"]);
  expect((await metrics.indexFailures.get()).values).toMatchObject([{ value: 1 }]);
  expect(await textIndex(database).pass()).toBe(true);
  expect(await linesFor(database, "gnu")).toHaveLength(2);
});

test("all sessions that are behind are found in pages by their keys, and no others", async () => {
  await database.run(sql`delete from leases`);
  await textIndex(database).pass();
  const ids = Array.from({ length: 1_100 }, (_, at) => `many-${String(at).padStart(4, "0")}`);
  await database.run(sql`
    insert into sessions (id, created_at, updated_at, message_seq)
    select value, now(), now(), 1 from json_array_elements_text(${JSON.stringify(ids)}::text::json)`);
  await database.run(sql`analyze sessions, indexed_sessions`);
  const found: string[] = [];
  for (let next: string | undefined = ""; next !== undefined; ) {
    const page: Awaited<ReturnType<typeof staleAfter>> = await staleAfter(database, next);
    found.push(...page.stale.map(({ sessionId }) => sessionId));
    next = page.next;
  }
  expect(found).toEqual(ids);
  const lines = await database.run(sql`explain ${staleStatement("many-0500")}`);
  const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  expect(plan).toContain("sessions_pkey");
});

// Bug: each pass, once a second, looked at all sessions.
test("a pass reads the new rows, active sessions each ten minutes, and all at first and when asked", async () => {
  await database.run(sql`delete from leases`);
  let nowMs = 0;
  const unit = textIndex(database, { clock: { monotonicMs: () => nowMs } });
  const foundAfterPass = async (sessionId: string) => {
    expect(await unit.pass()).toBe(true);
    return (await linesFor(database, "yak", { sessionId })).length > 0;
  };
  const old = (sessionId: string) =>
    database.run(sql`
      update session_messages set recorded_at = recorded_at - interval '2 minutes'
      where session_id = ${sessionId}`);
  const says = (sessionId: string) =>
    push(database, { sessionId, stream: "messages" }, [said("user", "a yak")]);
  for (const id of ["yak-old", "yak-new"]) await says(id);
  await old("yak-old");
  expect(await foundAfterPass("yak-old")).toBe(true);
  expect(await foundAfterPass("yak-new")).toBe(true);

  for (const id of ["yak-late", "yak-restored", "yak-said"]) await says(id);
  await push(database, { sessionId: "yak-events" }, run("r", ...spoken("m", "yaks graze")));
  for (const id of ["yak-late", "yak-restored"]) await old(id);
  await database.run(sql`
    update sessions set active_at = active_at - interval '1 day' where id = 'yak-restored'`);
  expect(await foundAfterPass("yak-late")).toBe(false);
  expect(await foundAfterPass("yak-said")).toBe(true);
  expect(await foundAfterPass("yak-events")).toBe(true);
  nowMs += 600_000;
  expect(await foundAfterPass("yak-late")).toBe(true);
  expect(await foundAfterPass("yak-restored")).toBe(false);
  await askAgain(database);
  nowMs += 10_000;
  expect(await foundAfterPass("yak-restored")).toBe(true);

  await forgetTexts(database, "yak-old");
  expect(await foundAfterPass("yak-old")).toBe(false);
  nowMs += 10_000;
  expect(await foundAfterPass("yak-old")).toBe(true);
  await unit.stop();
});

// Bug: a text was not found after 95 s, and nothing said so.
test("an answer gives the time that the index has reached", async () => {
  await database.run(sql`delete from leases`);
  const until = async () => (await pageOf(database, "takin")).indexedUntilMicros;
  const timeOf = async (sessionId: string) => {
    const [row] = await database.run(sql`
      select (extract(epoch from max(recorded_at)) * 1000000)::bigint as micros
      from session_messages where session_id = ${sessionId}`);
    return BigInt(String(row?.["micros"]));
  };
  let nowMs = 0;
  const unit = textIndex(database, { clock: { monotonicMs: () => nowMs } });
  const says = (sessionId: string) =>
    push(database, { sessionId, stream: "messages" }, [said("user", "a takin")]);
  await says("takin-1");
  expect(await until()).toBeUndefined();
  await unit.pass();
  expect(await until()).toBeGreaterThan(await timeOf("takin-1"));
  await says("takin-2");
  expect(await until()).toBeLessThan(await timeOf("takin-2"));
  await unit.pass();
  const found = await until();
  expect(found).toBeGreaterThan(await timeOf("takin-2"));
  // Without new texts the time is stored each five seconds.
  await unit.pass();
  expect(await until()).toBe(found);
  nowMs += 5_000;
  await unit.pass();
  expect(await until()).toBeGreaterThan(found ?? 0n);
  // Another instance goes on from it.
  await unit.stop();
  expect(await until()).toBeDefined();
  await forgetTexts(database, "takin-1");
  expect(await until()).toBeUndefined();
});

// Bug: the texts that a fold had stored were lost, when its session was forgotten and its run was still open.
test("the texts of a session with an open run are all stored again after reindex", async () => {
  const sessionId = "serow";
  const open = run("r", ...spoken("m", "serow two")).slice(0, 4);
  await push(database, { sessionId }, open);
  await push(database, { sessionId, stream: "messages" }, [said("user", "serow one")]);
  const unit = textIndex(database);
  await unit.pass();
  await forgetTexts(database, sessionId);
  await push(database, { sessionId, stream: "messages" }, [said("user", "serow three")]);
  await unit.pass();
  await unit.pass();
  const lines = await linesFor(database, "serow", { sessionId });
  expect(lines.join("\n")).toContain("one");
  expect(lines.join("\n")).toContain("three");
  await unit.stop();
});

test("new rows are found by their times, and their sessions by their keys, for any number of sessions", async () => {
  await database.run(sql`
    insert into sessions (id, created_at, updated_at, message_seq, event_seq)
    select 'crowd-' || n, now(), now(), 1, 1 from generate_series(1, 5000) n`);
  for (const table of [sql`session_messages`, sql`session_events`])
    await database.run(sql`
      insert into ${table} (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 'crowd-' || n, 1, gen_random_uuid(), 'other', '{}', now(), now() - interval '1 day'
      from generate_series(1, 5000) n`);
  const [now] = await database.run(
    sql`select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros`,
  );
  for (const stream of ["messages", "events"] as const) {
    const row = stream === "messages" ? said("user", "a zho") : event({ type: "RAW", event: 1 });
    for (const sessionId of ["crowd-7", "crowd-8"])
      await push(database, { sessionId, stream }, [row]);
    await database.run(sql`analyze`);
    const statement = sinceStatement(stream, BigInt(String(now?.["micros"])));
    const lines = await database.run(sql`explain analyze ${statement}`, { prepare: false });
    const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
    expect(plan).toContain(`using session_${stream}_recorded`);
    expect(plan).toMatch(/(?:using|on) sessions_pkey/);
    expect(plan).not.toContain("Seq Scan");
    const read = [...plan.matchAll(/^(?!.*Bitmap Index Scan).*actual [^)]*rows=([\d.]+)/gm)].map(
      ([, count]) => Number(count),
    );
    expect(Math.max(...read)).toBe(2);
  }
  await database.run(sql`
    update sessions set active_at = now() - interval '1 day' where id not in ('crowd-7', 'crowd-8')`);
  await database.run(sql`vacuum analyze sessions`, { prepare: false });
  const active = activeStatement({ micros: BigInt(String(now?.["micros"])), id: "" });
  const lines = await database.run(sql`explain ${active}`, { prepare: false });
  const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  expect(plan).toMatch(/Index (?:Only )?Scan (?:Backward )?using sessions_active /);
});
