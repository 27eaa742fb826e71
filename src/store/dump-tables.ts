/**
 * The tables of a dump, and their rows as JSON. A table that a later version adds belongs here, or
 * to DERIVED of test/postgres/dump.test.ts if its rows can be made again from the others.
 */
import { getTableColumns, getTableName } from "drizzle-orm";
import type { PgTable } from "drizzle-orm/pg-core";
import { type SQL, sql } from "./database.ts";
import {
  importedRows,
  imports,
  sessionEvents,
  sessionMessages,
  sessions,
  tokenKeys,
} from "./schema.ts";

/** The rows of a session follow the line of their session, which alone has its id. */
export const SESSION_KINDS = ["message", "event", "imported"] as const;
export type SessionKind = (typeof SESSION_KINDS)[number];

/** The columns of their primary keys, within a session. */
export const ROW_KEYS: Readonly<Record<SessionKind, readonly string[]>> = {
  message: ["seq"],
  event: ["seq"],
  imported: ["stream", "old_seq"],
};

/** A line of a dump has one member, named by its kind, with the row of one table. */
export const DUMPED_KINDS = ["session", ...SESSION_KINDS, "token_key", "import"] as const;
export type DumpedKind = (typeof DUMPED_KINDS)[number];

const DUMPED: Readonly<Record<DumpedKind, PgTable>> = {
  session: sessions,
  message: sessionMessages,
  event: sessionEvents,
  imported: importedRows,
  token_key: tokenKeys,
  import: imports,
};

export function isKind(kind: string | undefined): kind is DumpedKind {
  return DUMPED_KINDS.some((one) => one === kind);
}

export function isSessionKind(kind: string): kind is SessionKind {
  return SESSION_KINDS.some((one) => one === kind);
}

/** The first is on the line of the session; the other is found again from the rows. */
const LEFT_OUT: readonly string[] = ["session_id", "retained_until"];

/** The columns of a line, in the order of the schema. */
export function dumpedColumns(kind: DumpedKind): readonly string[] {
  return columnsOf(kind).map(({ name }) => name);
}

function columnsOf(kind: DumpedKind) {
  return Object.values(getTableColumns(DUMPED[kind])).filter(
    ({ name }) => !LEFT_OUT.includes(name),
  );
}

/**
 * A row of the alias `t` as the text of a JSON object without its nulls. Numbers of 64 bits are
 * texts, as in the JSON of protobuf, because many readers of JSON would round them.
 */
export function rowAsJson(kind: DumpedKind): SQL {
  const columns = columnsOf(kind).map((column) => {
    const name = `t."${column.name}"`;
    return column.getSQLType() === "bigint" ? `${name}::text as "${column.name}"` : name;
  });
  return sql.raw(
    `json_strip_nulls((select row_to_json(c) from (select ${columns.join(", ")}) c))::text`,
  );
}

export function tableOf(kind: DumpedKind): SQL {
  return sql.raw(`"${tableName(kind)}"`);
}

export function tableName(kind: DumpedKind): string {
  return getTableName(DUMPED[kind]);
}
