/** Dumps and restores at their borders: the snapshot, pages, groups of sessions, and wrong dumps. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fromJsonLines } from "@session-ledger/runner/internal/lines";
import { dump, pageStatement } from "../../src/maintenance/dump.ts";
import { type DumpLine, restore, type RestoreSummary } from "../../src/maintenance/restore.ts";
import { append } from "../../src/store/append.ts";
import { sql } from "../../src/store/database.ts";
import { DUMPED_KINDS, SESSION_KINDS, tableName } from "../../src/store/dump-tables.ts";
import { createLedger, newPush, newRow, type TestLedger, useLedger } from "../support/ledger.ts";

const ledger = await useLedger();

/** Tables whose rows come from the rows of other tables. */
const DERIVED = [
  "indexed_sessions",
  "leases",
  "session_runs",
  "session_texts",
  "session_tool_calls",
];

async function push(sessionId: string, rows = 1, { database } = ledger): Promise<void> {
  const made = Array.from({ length: rows }, () => newRow());
  await append(database, [newPush(sessionId, { rows: made })], { createMissing: true, wait: true });
}

async function dumpOf(
  { database }: TestLedger,
  sessionIds?: readonly string[],
  printed: (line: string) => Promise<unknown> = () => Promise.resolve(),
): Promise<readonly string[]> {
  const lines: string[] = [];
  const print = async (line: string) => {
    lines.push(line);
    await printed(line);
    return true;
  };
  await dump(database, { sessionIds, print, signal: new AbortController().signal });
  return lines;
}

function restored(
  { database }: TestLedger,
  lines: Iterable<string>,
  signal = new AbortController().signal,
): Promise<RestoreSummary> {
  const source = async function* () {
    for (const line of lines) yield `${line}\n`;
  };
  const input: AsyncIterable<DumpLine> = fromJsonLines(source());
  const refused = (sessionId: string, difference: string): void => {
    differences.push(`${sessionId}: ${difference}`);
  };
  return restore(database, input, { signal, refused, committed: () => undefined });
}

/** Of the sessions that restores have refused. */
const differences: string[] = [];

test("every table of the schema is dumped, or can be made again", async () => {
  const tables = await ledger.database.run(sql`
    select relname from pg_class where relnamespace = current_schema()::regnamespace
      and relkind in ('r', 'p', 'm') order by relname`);
  const known = [...DUMPED_KINDS.map(tableName), ...DERIVED];
  expect(tables.map(({ relname }) => relname)).toEqual(known.toSorted());
});

test("a dump has no row that is stored while it runs", async () => {
  for (const id of ["snap-a", "snap-b"]) await push(id, 2);
  let hasPushed = false;
  const during = await dumpOf(ledger, undefined, async (line) => {
    if (hasPushed || !line.startsWith('{"session":{"id":"snap-a"')) return;
    hasPushed = true;
    for (const id of ["snap-a", "snap-b", "snap-c"]) await push(id);
    await ledger.database.run(
      sql`delete from session_events where session_id = 'snap-b' and seq = 1`,
    );
  });
  expect(hasPushed).toBe(true);
  const copy = await createLedger();
  expect(await restored(copy, during)).toMatchObject({ problem: undefined });
  const rows = await copy.database.run(sql`
    select s.id, event_seq::text as seq, (select count(*)::int from session_events where session_id = s.id)
      as rows from sessions s where id like 'snap-%' order by id`);
  expect(rows).toEqual(["snap-a", "snap-b"].map((id) => ({ id, seq: "2", rows: 2 })));
  await copy[Symbol.asyncDispose]();
});

test("pages end at 1,000 rows, exactly and one row off, and continue", async () => {
  for (const rows of [999, 1_000, 1_001, 2_000]) await push(`pages-${rows}`, rows);
  await ledger.database.run(sql`
    insert into imported_rows select 'pages-999', stream, n, n
    from generate_series(1, 1500) n, (values ('events'), ('messages')) streams(stream)`);
  const lines = await dumpOf(ledger, ["pages-999", "pages-1000", "pages-1001", "pages-2000"]);
  const ends = lines.flatMap((line) => JSON.parse(line).end ?? []);
  expect(ends.map(({ session, event, imported }) => [session, event, imported])).toEqual([
    ["pages-1000", 1_000, 0],
    ["pages-1001", 1_001, 0],
    ["pages-2000", 2_000, 0],
    ["pages-999", 999, 3_000],
    [undefined, undefined, undefined],
  ]);
  const rows = lines.filter((line) => !line.startsWith('{"event"'));
  expect(new Set(rows).size).toBe(rows.length);
});

test.each(SESSION_KINDS)("pages of the kind %s walk down the primary key", async (kind) => {
  const after = { key: kind === "imported" ? "events,5" : "5" };
  const [plan] = await ledger.database.run(
    sql`explain (format json) ${pageStatement(kind, { id: "pages-2000", after })}`,
  );
  const text = JSON.stringify(plan);
  expect(text).toMatch(/Index Cond[^}]*(?:seq|old_seq)/);
  expect(text).not.toContain("Seq Scan");
});

describe("a restore that is interrupted", () => {
  test("has whole sessions, and the same call stores the others", async () => {
    const source = await createLedger();
    for (let at = 10; at < 22; at += 1) await push(`s${at}`, 500, source);
    const lines = await dumpOf(source);
    const whole = await createLedger();
    const stop = new AbortController();
    const cut = function* () {
      for (const [at, line] of lines.entries()) {
        if (at === 3_000) stop.abort();
        yield line;
      }
    };
    await expect(restored(whole, cut(), stop.signal)).rejects.toThrow("aborted");
    const counted = sql`
      select count(*)::int as sessions, min(n)::int as fewest, sum(n)::int as rows
      from (select count(*) as n from session_events group by session_id) c`;
    expect(await whole.database.run(counted)).toEqual([{ sessions: 4, fewest: 500, rows: 2_000 }]);

    const shorter = await restored(whole, lines.slice(0, 3_000));
    expect(shorter).toMatchObject({ sessions: 0, present: 4 });
    expect(shorter.problem).toBe("the dump is cut off after line 3000: its last line is missing");
    expect(await restored(whole, lines)).toMatchObject({
      problem: undefined,
      sessions: 8,
      rows: 4_000,
      present: 4,
      refused: 0,
    });
    expect(await dumpOf(whole)).toEqual(lines);
    await source[Symbol.asyncDispose]();
    await whole[Symbol.asyncDispose]();
  });
});

// Bug: a restore said of a session without its rows, or with forged ones, that it was there already.
describe("an existing session", () => {
  const wrongs = {
    "lacks a message": [sql`delete from session_messages where session_id = 'here' and seq = 2`],
    "lacks all events": [sql`delete from session_events where session_id = 'here'`],
    "has a forged event": [
      sql`update session_events set payload = '{"forged":1}' where session_id = 'here' and seq = 2`,
    ],
    "has an event of another actor": [
      sql`update session_events set actor = 'eve' where session_id = 'here' and seq = 1500`,
    ],
    "has an event more": [
      sql`insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
        values ('here', 5000, gen_random_uuid(), 'RAW', '{}', now(), now())`,
    ],
    "has another place of an imported row": [
      sql`update imported_rows set new_seq = 7 where session_id = 'here' and old_seq = 1`,
    ],
  };
  const differencesOf: Readonly<Record<keyof typeof wrongs, string>> = {
    "lacks a message": "message 2 is missing",
    "lacks all events": "event 1 is missing",
    "has a forged event": "event 2 is not that of the dump",
    "has an event of another actor": "event 1500 is not that of the dump",
    "has an event more": "it has 1501 rows of the kind event, and the dump has 1500",
    "has another place of an imported row": "imported events,1 is not that of the dump",
  };

  test.each(Object.keys(wrongs))("and %s is not called equal, and not changed", async (name) => {
    const here = await createLedger();
    await push("here", 1_500, here);
    const messages = Array.from({ length: 3 }, () => newRow({ eventType: "user" }));
    await append(
      here.database,
      messages.map((row) => newPush("here", { stream: "messages", rows: [row] })),
      { createMissing: true, wait: true },
    );
    await here.database.run(sql`
      insert into imported_rows (session_id, stream, old_seq, new_seq) values ('here', 'events', 1, 1)`);
    await push("other", 2, here);
    const lines = await dumpOf(here);
    differences.length = 0;
    expect(await restored(here, lines)).toMatchObject({ present: 2, refused: 0 });
    const key = Object.keys(wrongs).find((one): one is keyof typeof wrongs => one === name);
    if (key === undefined) throw new Error(name);
    for (const statement of wrongs[key]) await here.database.run(statement);
    const changed = await dumpOf(here);
    const again = await restored(here, lines);
    expect(again).toMatchObject({ sessions: 0, present: 1, refused: 1, problem: undefined });
    expect(differences).toEqual([`here: ${differencesOf[key]}`]);
    expect(await dumpOf(here)).toEqual(changed);
    await here[Symbol.asyncDispose]();
  });
});

describe("a wrong dump", () => {
  let right: readonly string[];
  let empty: TestLedger;
  beforeAll(async () => {
    await push("wrong", 3);
    right = await dumpOf(ledger, ["wrong"]);
    empty = await createLedger();
  });
  afterAll(() => empty[Symbol.asyncDispose]());

  const head = (
    change: (first: { version: number; columns: Record<string, string[]> }) => void,
  ) => {
    const first = JSON.parse(right[0] ?? "");
    change(first);
    return [JSON.stringify(first), ...right.slice(1)];
  };
  const line = (at: number, text: string) => right.with(at, text);

  test.each<readonly [string, () => readonly string[], string]>([
    [
      "of a newer version",
      () => head((first) => (first.version = 2)),
      "line 1: the dump has version 2",
    ],
    [
      "with a column of a newer version",
      () => head(({ columns }) => columns["event"]?.push("colour")),
      "line 1: the dump has the column colour of event",
    ],
    [
      "with a kind of a newer version",
      () => head(({ columns }) => (columns["segment"] = ["seq"])),
      "line 1: the dump has lines of the kind segment",
    ],
    ["that is another file", () => ['{"type":"CUSTOM"}'], "line 1: expected the first line"],
    ["that is empty", () => [], "the dump is cut off after line 0"],
    [
      "with another dump behind it",
      () => [...right, ...right],
      "line 8: the dump ends before this line",
    ],
    [
      "without a session that has no rows",
      () => [...right.slice(0, 1), '{"end":{"session":"x"}}', ...right.slice(1)],
      "line 2: expected the end of the dump, with its 0 sessions",
    ],
    [
      "without one of its sessions",
      () => right.toSpliced(1, 5),
      "line 2: expected the end of the dump, with its 0 sessions",
    ],
    ["without its end", () => right.slice(0, -1), "the dump is cut off after line 6"],
    [
      "without the end of a session",
      () => right.toSpliced(5, 1),
      "line 6: expected the end of session",
    ],
    [
      "without a row",
      () => right.toSpliced(3, 1),
      "line 5: session wrong has 2 lines of the kind event",
    ],
    [
      "without a session",
      () => right.toSpliced(1, 1),
      "line 2: a row without the line of its session",
    ],
    [
      "with a row twice",
      () => right.toSpliced(3, 0, right[2] ?? ""),
      "lines 3 to 6: PostgreSQL refuses",
    ],
    ["with another member", () => line(3, '{"event":{},"x":1}'), "line 4: expected one member"],
    [
      "with a row without columns",
      () => line(3, '{"event":{"seq":"2"}}'),
      "lines 3 to 5: PostgreSQL",
    ],
    ["with an id that is no text", () => line(1, '{"session":{"id":1}}'), "line 2: session.id"],
  ])("%s is refused with its line, and nothing of it is stored", async (_, lines, problem) => {
    const summary = await restored(empty, lines());
    expect(summary.problem).toContain(problem);
    expect(summary.sessions).toBe(0);
    const [count] = await empty.database.run(sql`
      select (select count(*) from sessions) + (select count(*) from session_events) as rows`);
    expect(count).toEqual({ rows: "0" });
  });

  test("of an older version without a column gets the default of that column", async () => {
    const old = head(({ columns }) => {
      columns["event"] = (columns["event"] ?? []).filter((name) => name !== "conformant");
    });
    expect(await restored(empty, old)).toMatchObject({ problem: undefined, sessions: 1, rows: 3 });
    expect(await dumpOf(empty)).toEqual(right);
  });
});
