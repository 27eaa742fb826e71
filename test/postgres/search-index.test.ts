/** The unit that stores texts: one instance at a time, through failures and restarts. */
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createMetrics } from "../../src/observability/metrics.ts";
import { behindAfter, behindStatement } from "../../src/search/index-store.ts";
import type { Database } from "../../src/store/database.ts";
import { readLogged } from "../../src/store/pages.ts";
import { eventually } from "../support/eventually.ts";
import { createLedger, type TestLedger } from "../support/ledger.ts";
import { linesFor, push, run, said, spoken, textIndex } from "../support/texts.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

let ledger: TestLedger;
let database: Database;
beforeAll(async () => {
  ledger = await createLedger();
  ({ database } = ledger);
});
afterAll(async () => ledger[Symbol.asyncDispose]());

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
    loggedAfter: (page: Parameters<typeof readLogged>[1]) => {
      if (page.sessionId === "a-broken") throw new TypeError("a defect");
      return readLogged(database, page);
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
    const page: Awaited<ReturnType<typeof behindAfter>> = await behindAfter(database, next);
    found.push(...page.behind.map(({ sessionId }) => sessionId));
    next = page.next;
  }
  expect(found).toEqual(ids);
  const lines = await database.run(sql`explain ${behindStatement("many-0500")}`);
  const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  expect(plan).toContain("sessions_pkey");
});
