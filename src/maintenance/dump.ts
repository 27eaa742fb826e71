/**
 * Writes a ledger, or chosen sessions of it, as JSON lines that `restore` reads. All lines come from
 * one snapshot: a transaction with repeatable reads, while services run. Memory is bounded by
 * one page of rows.
 *
 *   {"dump": "session-ledger", "version": 1, "columns": {"session": ["id", …], …}}
 *   {"session": {…}}
 *   {"message": {…}}                     its rows: messages, events, and the places of imported rows
 *   {"event": {…}}
 *   {"end": {"session": "…", "message": 1, "event": 1, "imported": 0}}
 *   …                                    the sessions in the order of the bytes of their ids
 *   {"token_key": {…}}, {"import": {…}}  only of a whole ledger
 *   {"end": {"sessions": 1}}
 *
 * The lines depend on the rows alone, so a dump of a restored ledger has the same bytes.
 */
import { storedBytes } from "../store/columns.ts";
import { type Database, type Fields, type SQL, sql, type Transaction } from "../store/database.ts";
import {
  DUMPED_KINDS,
  dumpedColumns,
  rowAsJson,
  SESSION_KINDS,
  type SessionKind,
  tableOf,
} from "../store/dump-tables.ts";
import { inSnapshot, refuseUnknown, sessionIds } from "./snapshot.ts";

/** The meaning of the lines. A column more is no new version, because the first line names all. */
export const DUMP_VERSION = 1;

const PAGE_ROWS_MAX = 1_000;
/** Payloads and other long fields of a page; one row may have more. */
const PAGE_BYTES_MAX = 4 * 1024 * 1024;

export interface DumpCall {
  /** Undefined: every session, also deleted and erased ones, and the keys that sign tokens. */
  readonly sessionIds: readonly string[] | undefined;
  /** False: no line is wanted any more. */
  readonly print: (line: string) => Promise<boolean>;
  readonly signal: AbortSignal;
}

interface Written {
  sessions: number;
  rows: number;
}

/** Undefined: the reader left, or the signal was aborted. */
export async function dump(
  database: Database,
  { sessionIds: chosen, print, signal }: DumpCall,
): Promise<Readonly<Written> | undefined> {
  return inSnapshot(database, async (transaction) => {
    const written = { sessions: 0, rows: 0 };
    for await (const line of linesOf(transaction, chosen, written))
      if (signal.aborted || !(await print(line))) return undefined;
    return written;
  });
}

type Lines = AsyncGenerator<string, void, undefined>;

async function* linesOf(
  transaction: Transaction,
  chosen: DumpCall["sessionIds"],
  written: Written,
): Lines {
  await refuseUnknown(transaction, chosen);
  const columns = Object.fromEntries(
    DUMPED_KINDS.map((kind) => [kind, dumpedColumns(kind)] as const),
  );
  yield JSON.stringify({ dump: "session-ledger", version: DUMP_VERSION, columns });
  for await (const id of sessionIds(transaction, chosen)) {
    yield* sessionLines(transaction, id, written);
    written.sessions += 1;
  }
  for (const [kind, order] of chosen === undefined ? LAST : []) {
    const read = sql`select ${rowAsJson(kind)} as line from ${tableOf(kind)} t order by ${order}`;
    for (const { line } of await transaction.execute(read)) yield `{"${kind}":${String(line)}}`;
  }
  yield `{"end":{"sessions":${written.sessions}}}`;
}

async function* sessionLines(transaction: Transaction, id: string, written: Written): Lines {
  const [session] = await transaction.execute(
    sql`select ${rowAsJson("session")} as line from ${tableOf("session")} t where t.id = ${id}`,
  );
  yield `{"session":${String(session?.["line"])}}`;
  const counts: Partial<Record<SessionKind, number>> = {};
  for (const kind of SESSION_KINDS) {
    let [count, after]: [number, Fields | undefined] = [0, undefined];
    for (;;) {
      const page = await transaction.execute(pageStatement(kind, { id, after }));
      for (const { line } of page) yield `{"${kind}":${String(line)}}`;
      count += page.length;
      after = page.at(-1);
      if (after?.["is_last"] !== false) break;
    }
    counts[kind] = count;
    written.rows += count;
  }
  yield JSON.stringify({ end: { session: id, ...counts } });
}

/** The last lines, and their order. */
const LAST = [
  ["token_key", sql`t.id collate "C"`],
  ["import", sql`t.source collate "C", t.stream collate "C"`],
] as const;

interface Paged {
  /** The primary key within a session. */
  readonly order: SQL;
  readonly beyond: (last: Fields) => SQL;
  /** The long fields of a row. */
  readonly bytes: SQL;
}

const BY_NUMBER = {
  order: sql`seq`,
  beyond: ({ key }: Fields) => sql`seq > ${String(key)}::bigint`,
} as const;

const PAGED: Readonly<Record<SessionKind, Paged>> = {
  message: { ...BY_NUMBER, bytes: storedBytes("messages") },
  event: { ...BY_NUMBER, bytes: storedBytes("events") },
  imported: {
    order: sql`stream, old_seq`,
    beyond: ({ key }) =>
      sql`(stream, old_seq) > (split_part(${key}, ',', 1), split_part(${key}, ',', 2)::bigint)`,
    bytes: sql`0`,
  },
};

/** Exported for the plan test. */
export function pageStatement(
  kind: SessionKind,
  { id, after }: { readonly id: string; readonly after: Fields | undefined },
): SQL {
  const { order, beyond, bytes } = PAGED[kind];
  return sql`
    select ${rowAsJson(kind)} as line, concat_ws(',', ${order}) as key, not followed as is_last
    from (
      select *, sum(bytes) over w - bytes as bytes_before, lead(bytes) over w is not null as followed
      from (
        select *, ${bytes} as bytes from ${tableOf(kind)}
        where session_id = ${id} ${after === undefined ? sql`` : sql`and ${beyond(after)}`}
        order by ${order} limit ${PAGE_ROWS_MAX + 1}
      ) wanted
      window w as (order by ${order} rows unbounded preceding)
    ) t
    where bytes_before < ${PAGE_BYTES_MAX}
    order by ${order} limit ${PAGE_ROWS_MAX}`;
}
