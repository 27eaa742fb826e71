/** The drawing of the tables in docs/tables.md, made from src/store/schema.ts. */
import { is } from "drizzle-orm";
import { getTableConfig, PgTable, type PgColumn } from "drizzle-orm/pg-core";
import * as schema from "../src/store/schema.ts";
import type { Arrow, Box, Picture, Words } from "./drawings.ts";

type Point = readonly [x: number, y: number];

const WIDTH = 260;
const HEADER = 28;
const ROW = 17;
const GAP = 30;

/** Tables from left to right, and in each column from top to bottom. */
const LAYOUT: readonly (readonly string[])[] = [
  ["sessions", "leases"],
  ["session_messages", "session_events", "imported_rows", "imports"],
  ["session_texts", "session_runs", "session_tool_calls", "indexed_sessions", "token_keys"],
];

/** Columns that hold the id of a session. */
const REFERENCES: readonly string[] = ["session_id", "parent_session_id"];

const TABLES = new Map(
  Object.values(schema)
    .filter((value) => is(value, PgTable))
    .map((table) => {
      const config = getTableConfig(table);
      return [config.name, config] as const;
    }),
);

type Table = ReturnType<typeof getTableConfig>;

/** A table and its place in the picture. */
interface PlacedTable extends Table {
  readonly at: Point;
}

const placed: readonly PlacedTable[] = LAYOUT.flatMap((names, column) => {
  let y = GAP + 10;
  return names.map((name) => {
    const table = TABLES.get(name);
    if (table === undefined) throw new Error(`schema.ts has no table ${name}`);
    const at: Point = [20 + column * (WIDTH + GAP), y];
    y += heightOf(table) + GAP;
    return { ...table, at };
  });
});

const missing = [...TABLES.keys()].filter((name) => !LAYOUT.flat().includes(name));
if (missing.length > 0) throw new Error(`the drawing has no place for ${missing.join(", ")}`);

function heightOf({ columns }: Table): number {
  return HEADER + columns.length * ROW + 8;
}

function keyOf({ primaryKeys }: Table): ReadonlySet<string> {
  return new Set(primaryKeys.flatMap(({ columns }) => columns.map(({ name }) => name)));
}

/** The last column of each unique index: the others are the session. */
function uniqueOf({ indexes }: Table): ReadonlySet<string | undefined> {
  return new Set(
    indexes
      .filter(({ config }) => config.unique)
      .map(({ config }) => {
        const last = config.columns.at(-1);
        return last !== undefined && "name" in last ? last.name : undefined;
      }),
  );
}

function boxesOf(table: PlacedTable): readonly Box[] {
  const [x, y] = table.at;
  const tone = ["sessions", "session_messages", "session_events"].includes(table.name)
    ? "accent"
    : "plain";
  return [
    { at: [x, y], size: [WIDTH, heightOf(table)] },
    { at: [x, y], size: [WIDTH, HEADER], title: table.name, tone },
  ];
}

function wordsOf(table: PlacedTable): readonly Words[] {
  const key = keyOf(table);
  const unique = uniqueOf(table);
  return table.columns.flatMap((column, index): readonly Words[] => {
    const { name, notNull, primary } = column;
    const isKey = primary || key.has(name);
    const type = `${typeOf(column)}${notNull ? "" : "?"}`;
    const mark = isKey ? ", key" : unique.has(name) ? ", unique" : "";
    const [x, y] = table.at;
    const base = y + HEADER + (index + 1) * ROW - 2;
    const tone = isKey ? "accent" : "plain";
    return [
      { at: [x + 10, base], text: name, tone },
      { at: [x + WIDTH - 10, base], text: type + mark, tone: "soft", anchor: "end" },
    ];
  });
}

function typeOf(column: PgColumn): string {
  return column.getSQLType().replace(/timestamp.*/, "timestamptz");
}

function rowY({ columns, at: [, y] }: PlacedTable, name: string): number {
  return y + HEADER + columns.findIndex((column) => column.name === name) * ROW + 10;
}

/** A line from each column that refers to a session to the id of the sessions. */
function arrowsOf(table: PlacedTable, sessions: PlacedTable): readonly Arrow[] {
  const idY = rowY(sessions, "id");
  const [left] = sessions.at;
  const [x] = table.at;
  const first = left + WIDTH + GAP / 2;
  return table.columns
    .filter(({ name }) => REFERENCES.includes(name))
    .map(({ name }) => {
      const y = rowY(table, name);
      if (x === left) return { path: `${x},${y} ${x - 10},${y} ${x - 10},${idY} ${x - 2},${idY}` };
      const end = `${first},${idY} ${left + WIDTH + 2},${idY}`;
      const start = `${x},${y} ${x - GAP / 2},${y}`;
      // The lines of the right column pass above the middle one.
      return x - GAP / 2 === first
        ? { path: `${start} ${end}` }
        : { path: `${start} ${x - GAP / 2},${GAP - 4} ${first},${GAP - 4} ${end}` };
    });
}

function sessionsTable(): PlacedTable {
  const sessions = placed.find(({ name }) => name === "sessions");
  if (sessions === undefined) throw new Error("the drawing has no sessions");
  return sessions;
}

const bottom = Math.max(...placed.map((table) => table.at[1] + heightOf(table)));

export const tables: Picture = {
  title: "The tables",
  description:
    "The tables of the schema with their columns and types. The table sessions has one row for each session. Lines join the columns session_id of the other tables, and parent_session_id, to its id. The tables leases, imports and token_keys refer to no session.",
  size: [880, bottom + 40],
  boxes: placed.flatMap(boxesOf),
  arrows: placed.flatMap((table) => arrowsOf(table, sessionsTable())),
  words: [
    ...placed.flatMap(wordsOf),
    {
      at: [20, bottom + 24],
      text: "key: part of the primary key · unique: unique in its session · ?: may be null · arrow: holds the id of a session",
      tone: "soft",
    },
  ],
};
