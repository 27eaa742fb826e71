/** The filters of a list of sessions, the indexes that serve them, and what they cost a push. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import {
  listSessions,
  type SessionFilter,
  type SessionsPage,
  updateSession,
  weightsStatement,
} from "../../src/store/sessions.ts";
import { newPush, newRow, useLedger } from "../support/ledger.ts";

const SESSIONS = 20_000;
const scope = { projectId: undefined, sessionId: undefined };

const ledger = await useLedger({ statementTimeoutMs: 60_000 });

/** One session in 200 has the label team=blue, one in 400 waits, and one in 500 runs. */
beforeAll(async () => {
  await ledger.database.run(sql`
    insert into sessions (id, name, labels, created_at, updated_at, open_run_id, waiting_since)
    select 's' || n, 'n' || n, json_build_object('team', case n % 200 when 0 then 'blue' else 'red' end,
      'number', n::text)::text, now() - n * interval '1 s', now(), case n % 500 when 0 then 'r' end,
      case n % 400 when 0 then now() end
    from generate_series(1, ${SESSIONS}) n`);
  await ledger.database.run(sql`vacuum analyze sessions`, { prepare: false });
});

function page(filter: SessionFilter, rest: Partial<SessionsPage> = {}): SessionsPage {
  return { page: 1, size: 1_000, scope, filter, ...rest };
}

async function found(filter: SessionFilter): Promise<readonly string[]> {
  const { items, total } = await listSessions(ledger.database, page(filter));
  expect(total).toBe(items.length);
  return items.map(({ id }) => id);
}

test("pushes into a session with labels, and messages into one that waits, change no index", async () => {
  const counts = async () => {
    await ledger.database.run(sql`select pg_stat_force_next_flush()`);
    const [row] = await ledger.database.run(sql`
      select n_tup_upd::int as updates, n_tup_hot_upd::int as within from pg_stat_user_tables
      where relname = 'sessions'`);
    return row;
  };
  for (let n = 0; n < 10; n += 1) {
    await append(ledger.database, [newPush("s2")], { createMissing: false, wait: true });
    const message = { stream: "messages", rows: [newRow({ eventType: "user" })] } as const;
    await append(ledger.database, [newPush("s400", message)], { createMissing: false, wait: true });
  }
  await expect.poll(counts).toEqual({ updates: 20, within: 20 });
});

describe("a list of sessions with labels", () => {
  const labelled = (labels: string) => updateSession(ledger.database, "s1", { labels });

  test.each([
    ["an object of texts", '{"a":"b","é":"😀"}', { a: "b", é: "😀" }, true],
    ["another value", '{"a":"b"}', { a: "c" }, false],
    ["one of two labels only", '{"a":"b"}', { a: "b", c: "d" }, false],
    ["a key and value with the border elsewhere", '{"a":"b:c"}', { "a:b": "c" }, false],
    ["a digit that could be a length", '{"1":"1"}', { "11": "" }, false],
    ["an empty key and value", '{"":""}', { "": "" }, true],
    ["a number", '{"a":1}', { a: "1" }, false],
    ["an escaped text", '{"\\u0061":"\\u0062"}', { a: "b" }, true],
    [
      "the name of a property of objects",
      '{"__proto__":"b"}',
      JSON.parse('{"__proto__":"b"}'),
      true,
    ],
    ["U+0000", '{"a":"b","c":"\\u0000"}', { a: "b" }, false],
    ["half a surrogate pair", '{"a":"b","c":"\\ud800"}', { a: "b" }, false],
    ["an array", '["a","b"]', { a: "b" }, false],
    ["text that is no JSON", "a=b", { a: "b" }, false],
    ["nothing", "", { a: "b" }, false],
    ["deep JSON", "[".repeat(60_000), { a: "b" }, false],
    ["a pair of 1,024 bytes", `{"a":"${"b".repeat(1_023)}"}`, { a: "b".repeat(1_023) }, true],
    ["a pair of 64 KiB", `{"b":"${"b".repeat(65_000)}","a":"b"}`, { a: "b" }, true],
    ["the 64th label", manyLabels(), { k63: "v" }, true],
    ["the 65th label", manyLabels(), { k64: "v" }, false],
  ])("%s: %s", async (_title, labels, wanted, isFound) => {
    await labelled(labels);
    expect(await found({ labels: wanted })).toEqual(isFound ? ["s1"] : []);
  });

  test("is served by the index of labels, alone and in a project", async () => {
    expect(await found({ labels: { team: "blue" } })).toHaveLength(SESSIONS / 200);
    expect(await found({ labels: { team: "blue", number: "400" } })).toEqual(["s400"]);
    const few = page({ labels: { team: "blue", number: "400" } }, { size: 10 });
    expect(await planOf(few)).toContain("Bitmap Index Scan on sessions_labels");
    expect(await planOf(page({ labels: { team: "blue" } }))).toContain("sessions_labels");
  });
});

test("waiting and running sessions are found by their indexes", async () => {
  expect(await found({ waiting: true })).toHaveLength(SESSIONS / 400);
  expect(await found({ waiting: true, running: true })).toHaveLength(SESSIONS / 2_000);
  const longest = page({ waiting: true }, { size: 10, order: "waiting" });
  expect(await planOf(longest)).toContain("Index Scan using sessions_waiting");
  expect(await planOf(page({ running: true }, { size: 10 }))).toContain(
    "Index Scan using sessions_running",
  );
});

function manyLabels(): string {
  return JSON.stringify(Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, "v"])));
}

async function planOf(request: SessionsPage): Promise<string> {
  const lines = await ledger.database.run(sql`explain ${weightsStatement(request)}`, {
    prepare: false,
  });
  return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
}
