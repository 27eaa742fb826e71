/**
 * Functions of the database write rows that TypeScript does not check: their INSERTs are compared with the
 * tables of schema.ts, as the database has the functions after all migrations.
 */
import { getTableConfig, type PgTable } from "drizzle-orm/pg-core";
import { expect, test } from "vitest";
import { sql } from "../../src/store/database.ts";
import { sessionEvents, sessionMessages, sessions } from "../../src/store/schema.ts";
import { useLedger } from "../support/ledger.ts";

const ledger = await useLedger();

const definitions = new Map(
  (
    await ledger.database.run(
      sql`select proname as name, pg_get_functiondef(oid) as text from pg_proc
        where proname in ('ledger_append_pushes', 'ledger_append_chained_pushes', 'ledger_fork_session')`,
    )
  ).map(({ name, text }) => [String(name), String(text)]),
);

function definitionOf(name: string): string {
  const text = definitions.get(name);
  if (text === undefined) throw new Error(`the database has no function ${name}`);
  return text;
}

/** The columns that a function gives to a new row of a table, in each of its branches. */
function writtenBy(name: string, table: string): readonly string[] {
  const inserts = definitionOf(name).matchAll(/INSERT INTO (\w+) \(([^)]+)\)/g);
  const own = [...inserts].filter(([, into]) => into === table);
  const lists = new Set(own.map(([, , list = ""]) => list));
  const [columns] = lists;
  if (columns === undefined || lists.size > 1)
    throw new Error(`${name} has ${lists.size} lists of columns of ${table}, and should have one`);
  return columns.split(",").map((column) => column.trim());
}

function columnsOf(table: PgTable) {
  return getTableConfig(table).columns;
}

test.each([
  ["ledger_append_pushes", "session_messages", sessionMessages],
  ["ledger_append_pushes", "session_events", sessionEvents],
  ["ledger_append_chained_pushes", "session_messages", sessionMessages],
  ["ledger_append_chained_pushes", "session_events", sessionEvents],
  ["ledger_fork_session", "session_messages", sessionMessages],
  ["ledger_fork_session", "session_events", sessionEvents],
] as const)(
  "%s writes every column of %s, and leaves none to a default",
  (name, tableName, table) => {
    const columns = columnsOf(table).map((column) => column.name);
    expect(writtenBy(name, tableName).toSorted()).toEqual(columns.toSorted());
  },
);

const APPENDS = ["ledger_append_pushes", "ledger_append_chained_pushes"];

test.each(APPENDS)(
  "%s gives a new session its id and times, and leaves every other column to its default or null",
  (name) => {
    const columns = columnsOf(sessions);
    const needed = columns.filter(({ notNull, hasDefault }) => notNull && !hasDefault);
    expect(writtenBy(name, "sessions")).toEqual(needed.map((column) => column.name));
  },
);

test.each(APPENDS)("%s updates only columns of the table sessions", (called) => {
  const [, set = ""] = /UPDATE sessions SET(.+?)FROM \(/s.exec(definitionOf(called)) ?? [];
  const updated = [...set.matchAll(/^ {4}(\w+) = /gm)].map(([, name]) => name);
  expect(updated.length).toBeGreaterThan(10);
  const columns = columnsOf(sessions).map(({ name }) => name);
  expect(updated.filter((name) => !columns.includes(name ?? ""))).toEqual([]);
});
