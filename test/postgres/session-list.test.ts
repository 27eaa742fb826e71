/** The filters of a list of sessions, the indexes that serve them, and what they cost a push. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import {
  countStatement,
  listSessions,
  pageStatement,
  type SessionsPage,
  WALKED_MAX,
} from "../../src/store/session-list.ts";
import { type SessionFilter, updateSession } from "../../src/store/sessions.ts";
import { newPush, newRow, useLedger } from "../support/ledger.ts";

const SESSIONS = 20_000;
const scope = { projectId: undefined, sessionId: undefined };

const ledger = await useLedger({ statementTimeoutMs: 60_000 });

/**
 * One session in 200 has the label team=blue, one in 400 waits, and one in 500 runs. Activity has another
 * order than the sessions. The projects `a` and `b` have half of them each.
 */
beforeAll(async () => {
  await ledger.database.run(sql`
    insert into sessions (id, name, labels, created_at, updated_at, active_at, last_activity_at,
      open_run_id, waiting_since, project_id, phase, parent_session_id)
    select 's' || n, 'n' || n, json_build_object('team', case n % 200 when 0 then 'blue' else 'red' end,
      'number', n::text)::text, now() - n * interval '1 s', now(),
      now() + (n * 7919 % ${SESSIONS}) * interval '1 s', now() + (n * 7919 % ${SESSIONS}) * interval '1 s',
      case n % 500 when 0 then 'r' end, case n % 400 when 0 then now() + n * interval '1 ms' end,
      case n % 2 when 0 then 'a' else 'b' end,
      case when n > 15000 and n % 1000 = 0 then 'Failed' else 'Completed' end,
      case n % 1000 when 1 then 's1' end
    from generate_series(1, ${SESSIONS}) n`);
  await ledger.database.run(sql`vacuum analyze sessions`, { prepare: false });
});

function page(filter: SessionFilter, rest: Partial<SessionsPage> = {}): SessionsPage {
  return { from: 0, size: 1_000, scope, filter, ...rest };
}

async function found(filter: SessionFilter): Promise<readonly string[]> {
  const { items, total } = await listSessions(ledger.database, page(filter));
  expect(total).toEqual({ count: items.length, isLowerBound: false });
  return items.map(({ id }) => id);
}

test("pushes into a session with labels, and messages into one that waits, change no index", async () => {
  // PostgreSQL counts updates that leave a full page separately. They change no indexed column.
  const counts = async () => {
    await ledger.database.run(sql`select pg_stat_force_next_flush()`);
    const [row] = await ledger.database.run(sql`
      select n_tup_upd::int as updates, (n_tup_hot_upd + n_tup_newpage_upd)::int as "withoutIndex"
      from pg_stat_user_tables where relname = 'sessions'`);
    return row;
  };
  for (let n = 0; n < 10; n += 1) {
    await append(ledger.database, [newPush("s2")], { createMissing: false, wait: true });
    const message = { stream: "messages", rows: [newRow({ eventType: "user" })] } as const;
    await append(ledger.database, [newPush("s400", message)], { createMissing: false, wait: true });
  }
  await expect.poll(counts).toEqual({ updates: 20, withoutIndex: 20 });
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

  test("is found at once, wherever its sessions are", async () => {
    expect(await found({ labels: { team: "blue" } })).toHaveLength(SESSIONS / 200);
    expect(await found({ labels: { team: "blue", number: "400" } })).toEqual(["s400"]);
    expect(await found({ labels: { number: String(SESSIONS) } })).toEqual([`s${SESSIONS}`]);
    expect(await found({ labels: { number: "0" } })).toEqual([]);
  });
});

describe("a filter with an index", () => {
  test.each<[string, SessionFilter, number]>([
    ["waiting", { waiting: true }, SESSIONS / 400],
    ["waiting and running", { waiting: true, running: true }, SESSIONS / 2_000],
    ["a phase that only old sessions have", { phase: "Failed" }, 5],
    ["a phase of a project", { phase: "Failed", projectId: "a" }, 5],
    ["a phase of another project", { phase: "Failed", projectId: "b" }, 0],
    ["a project", { projectId: "a", labels: { team: "blue" } }, SESSIONS / 200],
    ["a parent", { parentSessionId: "s1" }, SESSIONS / 1_000],
    ["a parent and a text", { parentSessionId: "s1", query: "N1900" }, 1],
  ])("finds all of its sessions in every order: %s", async (_name, filter, count) => {
    const newest = await found(filter);
    expect(newest).toHaveLength(count);
    const active = await listSessions(ledger.database, page(filter, { order: "activity" }));
    expect(active.items.map(({ id }) => id).toSorted()).toEqual(newest.toSorted());
    const times = active.items.map(({ lastActivityAtMicros }) => lastActivityAtMicros);
    expect(times).toEqual(times.toSorted((a, b) => Number((b ?? 0n) - (a ?? 0n))));
  });
});

describe("a walk by tokens", () => {
  async function walked(request: SessionsPage) {
    const pages: string[][] = [];
    let next: SessionsPage["from"] | undefined = 0;
    for (; next !== undefined; ) {
      const listed = await listSessions(ledger.database, { ...request, from: next });
      pages.push(listed.items.map(({ id }) => id));
      next = listed.next && { place: listed.next, total: listed.total };
    }
    return pages;
  }

  test.each<[string, Partial<SessionsPage>, number]>([
    ["newest", {}, SESSIONS],
    ["activity", { order: "activity" }, SESSIONS],
    ["waiting", { order: "waiting", filter: { waiting: true } }, SESSIONS / 400],
    ["a project by activity", { order: "activity", filter: { projectId: "b" } }, SESSIONS / 2],
    ["a text", { filter: { query: "n777" } }, 11],
    ["a text that no session has", { filter: { query: "zzz" } }, 0],
    ["a text by activity", { order: "activity", filter: { query: "S777" } }, 11],
    ["a frequent phase", { filter: { phase: "Completed" } }, SESSIONS - 5],
  ])("has every session once: %s", async (_name, of, count) => {
    const ids = (await walked(page({}, { ...of, size: 700 }))).flat();
    expect(ids).toHaveLength(count);
    expect(new Set(ids).size).toBe(count);
  });

  test("stays where it is while sessions are made and deleted", async () => {
    const first = await listSessions(ledger.database, page({}, { size: 10 }));
    expect(first.next).toEqual({ micros: first.items[9]?.createdAtMicros, id: "s10" });
    const change = (statement: ReturnType<typeof sql>) => ledger.database.run(statement);
    await change(sql`
      insert into sessions (id, created_at, updated_at) values ('new', now() + interval '1 h', now())`);
    await change(sql`update sessions set deleted_at = now() where id = 's10'`);
    const from = first.next && { place: first.next, total: first.total };
    const second = await listSessions(ledger.database, page({}, { size: 3, from: from ?? 0 }));
    expect(second.items.map(({ id }) => id)).toEqual(["s11", "s12", "s13"]);
    await change(sql`delete from sessions where id = 'new'`);
    await change(sql`update sessions set deleted_at = null where id = 's10'`);
  });

  test("of a text reads a part of the sessions for a page, and its total is a lower bound", async () => {
    const query = "n1999";
    const { items, total, next } = await listSessions(ledger.database, page({ query }));
    expect(items.map(({ id }) => id)).toEqual(["s1999"]);
    expect(total).toEqual({ count: 1, isLowerBound: true });
    const from = next && { place: next, total };
    const last = await listSessions(ledger.database, page({ query }, { from: from ?? 0 }));
    expect(last).toMatchObject({ total, next: undefined });
    expect(last.items).toHaveLength(10);
  });
});

test("a total is exact up to 10,000", async () => {
  const of = async (filter: SessionFilter) => {
    const { total } = await listSessions(ledger.database, page(filter, { size: 1 }));
    return `${total.count}${total.isLowerBound ? "+" : ""}`;
  };
  expect(await of({})).toBe("10000+");
  expect(await of({ projectId: "a" })).toBe("10000");
  expect(await of({ waiting: true })).toBe(String(SESSIONS / 400));
});

const total = { count: WALKED_MAX, isLowerBound: true };
/** In the middle of each order. */
async function deepIn(of: Partial<SessionsPage>): Promise<SessionsPage["from"]> {
  const half = page({}, { ...of, size: 1, from: of.filter?.waiting ? 20 : SESSIONS / 4 });
  const { next } = await listSessions(ledger.database, half);
  return next === undefined ? 0 : { place: next, total };
}

test.each<[index: string, Partial<SessionsPage>]>([
  ["sessions_newest", {}],
  ["sessions_active", { order: "activity" }],
  ["sessions_waiting", { order: "waiting", filter: { waiting: true } }],
  ["sessions_of_project", { filter: { projectId: "a" } }],
  ["sessions_active_of_project", { order: "activity", filter: { projectId: "a" } }],
  ["sessions_active_of_project", { order: "activity", scope: { ...scope, projectId: "a" } }],
  ["sessions_of_parent", { filter: { parentSessionId: "s1" } }],
  ["sessions_newest", { filter: { query: "zzz" } }],
  ["sessions_active", { order: "activity", filter: { query: "zzz", phase: "Failed" } }],
])("the index %s has the order of its list, first page and deep ones", async (index, of) => {
  for (const from of [0, await deepIn(of)]) {
    const plan = await planOf(pageStatement(page({}, { ...of, size: 100, from })));
    expect(plan).toContain(`Index Scan using ${index} on sessions`);
    expect(plan).not.toMatch(/Sort|Seq Scan/);
  }
  const counting = await planOf(countStatement(page({}, { ...of })));
  expect(counting).toMatch(new RegExp(`Index (?:Only )?Scan using ${index} on sessions`));
});

function manyLabels(): string {
  return JSON.stringify(Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, "v"])));
}

async function planOf(statement: ReturnType<typeof pageStatement>): Promise<string> {
  const lines = await ledger.database.run(sql`explain ${statement}`, { prepare: false });
  return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
}
