/**
 * Writes the sessions of a dump into a ledger. A session is stored whole, with all of its rows, or
 * not at all: a transaction has one session or several, until GROUP_LINES_MAX. Memory is
 * bounded by one batch of rows.
 *
 *   first line ─► version and columns known?
 *   {"session"} ─► insert ─┬─ new ───► its rows ─► {"end"}: counts and chains equal? ─► stored
 *                          ├─ exists, and equal ─────► its rows are compared ─┬─ equal: an earlier restore
 *                          │                                                  │  stored it
 *                          └─ exists, and different ─► rows skipped: refused ◄┘ different
 *
 * The row of a session has its counters, its times to the microsecond and the sizes of its rows, so a
 * session that has changed since is known at once. The rows are compared too: somebody may have deleted or
 * forged some. So an interrupted restore is continued by the same command, and nothing is ever overwritten.
 */
import { codeOf } from "@session-ledger/base/errors";
import { type Database, type SQL, sql, type Transaction } from "../store/database.ts";
import {
  type DumpedKind,
  dumpedColumns,
  isKind,
  isSessionKind,
  ROW_KEYS,
  SESSION_KINDS,
  type SessionKind,
  tableOf,
} from "../store/dump-tables.ts";
import { compareChains } from "./chains.ts";
import { DUMP_VERSION } from "./dump.ts";

const BATCH_ROWS_MAX = 1_000;
/** Characters of the lines of one statement; one line may have more. */
const BATCH_CHARS_MAX = 4 * 1024 * 1024;
/** A transaction ends with the session that reaches this number of lines. */
const GROUP_LINES_MAX = 2_000;

export interface DumpLine {
  readonly number: number;
  readonly text: string;
  readonly value: unknown;
}

export interface RestoreCall {
  readonly signal: AbortSignal;
  /** Called for each session that exists and is different, with the first difference. */
  readonly refused: (sessionId: string, difference: string) => void;
  /** Called after each commit with the sum of all. */
  readonly committed: (done: RestoreCounts) => void;
}

export interface RestoreCounts {
  /** Sessions that this call stored, and their rows. */
  readonly sessions: number;
  readonly rows: number;
  /** Sessions that existed, equal. */
  readonly present: number;
  /** Sessions that exist and are different; nothing of them was stored. */
  readonly refused: number;
}

export interface RestoreSummary extends RestoreCounts {
  /** The dump cannot be read to its end, and why. */
  readonly problem: string | undefined;
}

export async function restore(
  database: Database,
  lines: AsyncIterable<DumpLine>,
  call: RestoreCall,
): Promise<RestoreSummary> {
  const input = new DumpInput(lines[Symbol.asyncIterator](), call.signal);
  const done = { sessions: 0, rows: 0, present: 0, refused: 0 };
  try {
    const columns = columnsIn(await input.next());
    while (!input.hasEnded) {
      const group = await database.transaction((transaction) =>
        new SessionGroup(transaction, columns, input, call).write(done),
      );
      for (const name of COUNTS) done[name] += group[name];
      call.committed({ ...done });
    }
    return { ...done, problem: undefined };
  } catch (error) {
    if (!(error instanceof WrongDump)) throw error;
    return { ...done, problem: error.message };
  } finally {
    await input.close();
  }
}

const COUNTS = ["sessions", "rows", "present", "refused"] as const;

/** The content of a dump is wrong; the message names the line. */
class WrongDump extends Error {}

class DumpInput {
  readonly #lines: AsyncIterator<DumpLine>;
  readonly #signal: AbortSignal;
  #last: DumpLine | undefined;
  hasEnded = false;

  constructor(lines: AsyncIterator<DumpLine>, signal: AbortSignal) {
    this.#lines = lines;
    this.#signal = signal;
  }

  async next(): Promise<DumpLine> {
    this.#signal.throwIfAborted();
    const { done, value } = await this.#lines.next();
    if (done === true) {
      throw new WrongDump(
        `the dump is cut off after line ${this.#last?.number ?? 0}: its last line is missing`,
      );
    }
    this.#last = value;
    return value;
  }

  /** After the last line of the dump. */
  async end(): Promise<void> {
    const { done, value } = await this.#lines.next();
    if (done !== true) throw new WrongDump(`line ${value.number}: the dump ends before this line`);
    this.hasEnded = true;
  }

  async close(): Promise<void> {
    await this.#lines.return?.();
  }
}

/** An older version did not have all kinds. */
type ColumnsByKind = Readonly<Partial<Record<DumpedKind, readonly string[]>>>;
type RowCounts = Readonly<Record<SessionKind, number>>;

function columnsIn({ value }: DumpLine): ColumnsByKind {
  if (!isObject(value) || value["dump"] !== "session-ledger") {
    throw new WrongDump("line 1: expected the first line of a dump of session-ledger");
  }
  const { version, columns } = value;
  if (typeof version !== "number" || version > DUMP_VERSION) {
    throw new WrongDump(
      `line 1: the dump has version ${String(version)}, and this session-ledger knows versions up to ${DUMP_VERSION}: restore it with a newer one`,
    );
  }
  if (!isObject(columns)) throw new WrongDump("line 1: `columns` is missing");
  const known = Object.entries(columns).map(([kind, names]) => {
    if (!isKind(kind)) throw unknownPart(`lines of the kind ${kind}`);
    if (!Array.isArray(names)) throw new WrongDump(`line 1: columns.${kind} is not a list`);
    const dumped = dumpedColumns(kind);
    const unknown = names.find((name) => !dumped.includes(String(name)));
    if (unknown !== undefined) throw unknownPart(`the column ${String(unknown)} of ${kind}`);
    return [kind, names.map(String)] as const;
  });
  return Object.fromEntries(known);
}

function unknownPart(what: string): WrongDump {
  return new WrongDump(
    `line 1: the dump has ${what}, which this session-ledger does not know: restore it with the version that wrote it, or a newer one`,
  );
}

/** Whole sessions, in one transaction. */
class SessionGroup {
  readonly #transaction: Transaction;
  readonly #columns: ColumnsByKind;
  readonly #input: DumpInput;
  readonly #call: RestoreCall;
  #batch: DumpLine[] = [];
  #batchChars = 0;
  /** The first difference of the session that is read from the stored one. */
  #difference: string | undefined;

  constructor(
    transaction: Transaction,
    columns: ColumnsByKind,
    input: DumpInput,
    call: RestoreCall,
  ) {
    this.#transaction = transaction;
    this.#columns = columns;
    this.#input = input;
    this.#call = call;
  }

  async write(before: RestoreCounts): Promise<RestoreCounts> {
    // The lines may come slowly.
    await this.#transaction.execute(sql`set local idle_in_transaction_session_timeout = 0`);
    const counts = { sessions: 0, rows: 0, present: 0, refused: 0 };
    for (let lines = 0; lines < GROUP_LINES_MAX; ) {
      const line = await this.#input.next();
      const [kind, content] = contentOf(line);
      if (kind === "session") {
        const { outcome, rows } = await this.#session(line, content);
        counts[outcome] += 1;
        if (outcome === "sessions") counts.rows += rows;
        lines += rows + 1;
      } else if (kind === "token_key" || kind === "import") {
        // An import that went on where this ledger has other rows would leave rows out.
        if (kind === "token_key" || counts.refused + before.refused === 0)
          await this.#insert(kind, [line]);
      } else if (kind === "end") {
        const read = sessionsOf(before) + sessionsOf(counts);
        if (content["sessions"] !== read) {
          throw new WrongDump(
            `line ${line.number}: expected the end of the dump, with its ${read} sessions`,
          );
        }
        await this.#input.end();
        return counts;
      } else throw new WrongDump(`line ${line.number}: a row without the line of its session`);
    }
    return counts;
  }

  async #session(
    line: DumpLine,
    content: Readonly<Record<string, unknown>>,
  ): Promise<{ readonly outcome: "sessions" | "present" | "refused"; readonly rows: number }> {
    const { id } = content;
    if (typeof id !== "string") throw new WrongDump(`line ${line.number}: session.id is missing`);
    const isNew = (await this.#insert("session", [line])) > 0;
    const isOther = !isNew && !(await this.#isEqual(line, id));
    this.#difference = isOther ? "its record is not that of the dump" : undefined;
    const counts = { message: 0, event: 0, imported: 0 };
    let batched: SessionKind = "message";
    for (;;) {
      const next = await this.#input.next();
      const [kind, row] = contentOf(next);
      if (kind === "end") {
        await this.#flush(batched, id, isNew);
        refuseOtherCounts(next, row, { id, counts });
        if (!isNew) this.#difference ??= await this.#moreRows(id, counts);
        else await this.#refuseOtherChains(next, id);
        const difference = this.#difference;
        if (difference !== undefined) this.#call.refused(id, difference);
        const outcome = isNew ? "sessions" : difference === undefined ? "present" : "refused";
        return { outcome, rows: counts.message + counts.event + counts.imported };
      }
      if (!isSessionKind(kind)) {
        throw new WrongDump(`line ${next.number}: the end of session ${id} is missing before it`);
      }
      counts[kind] += 1;
      if (this.#difference !== undefined) continue;
      const isFull =
        this.#batch.length >= BATCH_ROWS_MAX ||
        this.#batchChars + next.text.length > BATCH_CHARS_MAX;
      if (kind !== batched || isFull) await this.#flush(batched, id, isNew);
      batched = kind;
      this.#batch.push(next);
      this.#batchChars += next.text.length;
    }
  }

  async #flush(kind: SessionKind, sessionId: string, isNew: boolean): Promise<void> {
    const batch = this.#batch;
    [this.#batch, this.#batchChars] = [[], 0];
    if (batch.length === 0 || this.#difference !== undefined) return;
    if (isNew) await this.#insert(kind, batch, sessionId);
    else this.#difference = await this.#firstDifference(kind, batch, sessionId);
  }

  /** Of rows of an existing session; undefined: all are equal. */
  async #firstDifference(
    kind: SessionKind,
    lines: readonly DumpLine[],
    sessionId: string,
  ): Promise<string | undefined> {
    const names = this.#columns[kind] ?? [];
    const key = sql.join(ROW_KEYS[kind].map(ofRow), sql`, `);
    const equal = ROW_KEYS[kind].map((name) => sql.raw(`t."${name}" = r."${name}"`));
    const [row] = await this.#checked(
      lines,
      sql`
      select concat_ws(',', ${key}) as key, t.session_id
      from ${rowsOf(kind, lines)}
      left join ${tableOf(kind)} t on t.session_id = ${sessionId}::text and ${sql.join(equal, sql` and `)}
      where ${isDistinct("t", names)} order by ${key} limit 1`,
    );
    if (row === undefined) return undefined;
    const what = row["session_id"] === null ? "is missing" : "is not that of the dump";
    return `${kind} ${String(row["key"])} ${what}`;
  }

  /** Rows of the session that are not in the dump. */
  async #moreRows(sessionId: string, counts: RowCounts): Promise<string | undefined> {
    for (const kind of SESSION_KINDS) {
      const [row] = await this.#transaction.execute(
        sql`select count(*)::int as rows from ${tableOf(kind)} where session_id = ${sessionId}`,
      );
      const rows = Number(row?.["rows"]);
      if (rows !== counts[kind])
        return `it has ${rows} rows of the kind ${kind}, and the dump has ${counts[kind]}`;
    }
    return undefined;
  }

  /** The rows of the dump were changed after they were stored. */
  async #refuseOtherChains({ number }: DumpLine, sessionId: string): Promise<void> {
    const [problem] = (await compareChains(this.#transaction, sessionId)).problems;
    if (problem !== undefined)
      throw new WrongDump(`line ${number}: session ${sessionId}: ${problem}`);
  }

  /** Resolves with the number of stored rows. */
  async #insert(kind: DumpedKind, lines: readonly DumpLine[], sessionId?: string): Promise<number> {
    const names = this.#columns[kind] ?? [];
    const ofSession = sessionId === undefined ? [] : [sql`session_id`];
    const into = sql.join([...ofSession, ...names.map(columnNamed)], sql`, `);
    const values = sql.join(
      [...ofSession.map(() => sql`${sessionId}::text`), ...names.map((name) => ofRow(name))],
      sql`, `,
    );
    const inserted = await this.#checked(
      lines,
      sql`
      insert into ${tableOf(kind)} (${into}) select ${values} from ${rowsOf(kind, lines)}
      ${isSessionKind(kind) ? sql`` : sql`on conflict do nothing`} returning ${sql.join(names.slice(0, 1).map(columnNamed), sql``)}`,
    );
    return inserted.length;
  }

  async #isEqual(line: DumpLine, id: string): Promise<boolean> {
    const found = await this.#checked(
      [line],
      sql`
      select 1 from ${rowsOf("session", [line])} join sessions s on s.id = ${id}
      where not ${isDistinct("s", this.#columns.session ?? [])}`,
    );
    return found.length > 0;
  }

  /** A row that PostgreSQL refuses is the fault of the dump. */
  async #checked(lines: readonly DumpLine[], statement: SQL) {
    try {
      return await this.#transaction.execute(statement);
    } catch (error) {
      const [first, last] = [lines[0]?.number, lines.at(-1)?.number];
      if (!/^2[23]|^54/.test(codeOf(error)) || !(error instanceof Error)) throw error;
      const place = first === last ? `line ${first}` : `lines ${first} to ${last}`;
      throw new WrongDump(`${place}: PostgreSQL refuses a row: ${error.message}`);
    }
  }
}

function sessionsOf({ sessions, present, refused }: RestoreCounts): number {
  return sessions + present + refused;
}

/** The rows of the lines as the alias `r`. */
function rowsOf(kind: DumpedKind, lines: readonly DumpLine[]): SQL {
  const text = `[${lines.map((line) => line.text).join(",")}]`;
  return sql`json_array_elements(${text}::text::json) as line
    cross join lateral json_populate_record(null::${tableOf(kind)}, line->${sql.raw(`'${kind}'`)}) as r`;
}

function isDistinct(alias: string, names: readonly string[]): SQL {
  const here = names.map((name) => sql.raw(`${alias}."${name}"`));
  return sql`((${sql.join(here, sql`, `)}) is distinct from (${sql.join(names.map(ofRow), sql`, `)}))`;
}

function columnNamed(name: string): SQL {
  return sql.raw(`"${name}"`);
}

function ofRow(name: string): SQL {
  return sql.raw(`r."${name}"`);
}

function contentOf({
  number,
  value,
}: DumpLine): readonly [DumpedKind | "end", Readonly<Record<string, unknown>>] {
  const [member, ...others] = isObject(value) ? Object.entries(value) : [];
  const [kind, content] = member ?? [];
  if (others.length === 0 && isObject(content) && (kind === "end" || isKind(kind)))
    return [kind, content];
  throw new WrongDump(`line ${number}: expected one member with a row, like {"event":{…}}`);
}

function refuseOtherCounts(
  { number }: DumpLine,
  end: Readonly<Record<string, unknown>>,
  read: { readonly id: string; readonly counts: RowCounts },
): void {
  if (end["session"] !== read.id)
    throw new WrongDump(`line ${number}: expected the end of session ${read.id}`);
  for (const kind of SESSION_KINDS) {
    const [expected, counted] = [end[kind] ?? 0, read.counts[kind]];
    if (expected !== counted)
      throw new WrongDump(
        `line ${number}: session ${read.id} has ${counted} lines of the kind ${kind}, and its end names ${JSON.stringify(expected)}`,
      );
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
