/** docs/tables.md names every table and every column of src/store/schema.ts, and no other. */
import { readFileSync } from "node:fs";
import { is } from "drizzle-orm";
import { getTableConfig, PgTable } from "drizzle-orm/pg-core";
import { expect, test } from "vitest";
import * as schema from "../../src/store/schema.ts";

const PAGE = readFileSync("docs/tables.md", "utf8");

test("the page has each table with its columns, in the order of the schema", () => {
  const tables = Object.values(schema)
    .filter((value) => is(value, PgTable))
    .map((table) => getTableConfig(table));
  const wanted = tables.map(({ name, columns }) => [name, columns.map((column) => column.name)]);
  const [, ...sections] = PAGE.split(/^## (?=`)/m);
  const shown = sections.map((section) => [
    /^`(\w+)`/.exec(section)?.[1],
    [...section.matchAll(/^- `(\w+)`: \S/gm)].map(([, column]) => column),
  ]);
  expect(tables.length).toBeGreaterThan(0);
  expect(Object.fromEntries(shown)).toEqual(Object.fromEntries(wanted));
  expect(shown.length).toBe(wanted.length);
});

test("each table has its key and its growth", () => {
  const [, ...sections] = PAGE.split(/^## (?=`)/m);
  const incomplete = sections.filter((text) => !/Key: `.*(?:grows|rows? for each)/s.test(text));
  expect(incomplete).toEqual([]);
});

test("docs/concepts.md compares messages with events", () => {
  const page = readFileSync("docs/concepts.md", "utf8");
  const [, table = ""] = page.split("\n## Messages against events\n");
  const rows = [...table.matchAll(/^\| (\w+) \| \S.* \| \S.* \|$/gm)].map(([, name]) => name);
  expect(rows).toEqual(["purpose", "grain", "audience", "volume", "retention", "table"]);
});
