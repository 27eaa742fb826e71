/**
 * Compares the rows of each session with the row of the session, in one snapshot: numbers, counts, chains
 * and fragment indexes (docs/backup.md). Rows at the beginning of a session may be missing: an erasure
 * subtracts them from the counts, and stores the chain at its end.
 */
import { checkFragments, decodeFragments } from "@session-ledger/compressor/fragments";
import { isCounted, storedBytes, TABLE } from "../store/columns.ts";
import {
  bigintOf,
  type Database,
  type Fields,
  type SQL,
  sql,
  type Transaction,
} from "../store/database.ts";
import type { StreamName } from "../store/rows.ts";
import { compareChains, type Comparison, type Head } from "./chains.ts";
import { inSnapshot, refuseUnknown, sessionIds } from "./snapshot.ts";

export interface VerifyCall {
  /** Undefined: every session, also deleted ones. */
  readonly sessionIds: readonly string[] | undefined;
  /** Heads that were noted earlier, by session; a session that does not exist is damaged. */
  readonly heads?: ReadonlyMap<string, readonly Head[]>;
  /** Called for each session; false: no further one is wanted. */
  readonly verified: (session: VerifiedSession) => Promise<boolean>;
  readonly signal: AbortSignal;
}

/** Without problems the session is whole. */
export interface VerifiedSession extends Comparison {
  readonly sessionId: string;
  readonly messages: number;
  readonly events: number;
}

/** A damaged session names at most this number of merged rows. */
const INDEXES_NAMED_MAX = 20;

export function verify(database: Database, call: VerifyCall): Promise<void> {
  return inSnapshot(database, async (transaction) => {
    await refuseUnknown(transaction, call.sessionIds);
    const missing = new Map(call.sessionIds === undefined ? call.heads : []);
    for await (const id of sessionIds(transaction, call.sessionIds)) {
      if (call.signal.aborted) return;
      missing.delete(id);
      const heads = call.heads?.get(id) ?? [];
      if (!(await call.verified(await verifySession(transaction, id, heads)))) return;
    }
    for (const sessionId of missing.keys()) {
      const problems = ["it does not exist, and has a head in the file"];
      const nothing = { messages: 0, events: 0, uncovered: 0, notes: [] };
      if (!(await call.verified({ sessionId, ...nothing, problems }))) return;
    }
  });
}

async function verifySession(
  transaction: Transaction,
  sessionId: string,
  heads: readonly Head[],
): Promise<VerifiedSession> {
  const [fields] = await transaction.execute(sumsStatement(sessionId));
  const [messages, events] = [sumsOf("messages", fields), sumsOf("events", fields)];
  const rows = messages.counted + events.counted;
  const bytes = messages.bytes + events.bytes;
  const counted = {
    rows: bigintOf(fields?.["row_count"]),
    bytes: bigintOf(fields?.["payload_bytes"]),
  };
  const problems = [...problemsOf("messages", messages), ...problemsOf("events", events)];
  if (rows !== counted.rows) problems.push(`it counts ${counted.rows} rows, and has ${rows}`);
  if (bytes !== counted.bytes)
    problems.push(`it counts ${counted.bytes} stored bytes, and has ${bytes}`);
  const chains = await compareChains(transaction, sessionId, heads);
  problems.push(...chains.problems, ...(await indexProblems(transaction, sessionId)));
  const { uncovered, notes } = chains;
  return {
    sessionId,
    messages: Number(messages.rows),
    events: Number(events.rows),
    uncovered,
    problems,
    notes,
  };
}

function problemsOf(stream: StreamName, sums: Sums): string[] {
  const { rows, last, head, wrong, expected, holes } = sums;
  const problems: string[] = [];
  if (holes > 0n) {
    const further = holes > 1n ? `, and ${holes - 1n} further rows are like it` : "";
    problems.push(`${stream}: the row at ${wrong} should be at ${expected}${further}`);
  }
  if (rows > 0n && last !== head)
    problems.push(`${stream}: the last number is ${last}, and the session is at ${head}`);
  return problems;
}

function sumsStatement(sessionId: string): SQL {
  const sums = (stream: StreamName): SQL => {
    const taken = stream === "events" ? sql`event_count` : sql`1`;
    return sql`
      select count(*) as rows, count(*) filter (where is_counted) as counted,
        coalesce(sum(bytes) filter (where is_counted), 0) as bytes, coalesce(max(following), 1) - 1 as last,
        coalesce(min(seq) filter (where seq <> expected), 0) as wrong,
        coalesce((array_agg(expected order by seq) filter (where seq <> expected))[1], 0) as expected,
        count(*) filter (where seq <> expected) as holes
      from (
        select seq, seq + ${taken} as following, lag(seq + ${taken}) over (order by seq) as expected,
          ${storedBytes(stream)} as bytes, ${isCounted(stream)} as is_counted
        from ${TABLE[stream]} where session_id = ${sessionId}
      ) rows`;
  };
  return sql`
    select ${names("messages", "m")}, ${names("events", "e")}, s.message_seq::text as messages_head,
      s.event_seq::text as events_head, s.row_count::text as row_count,
      s.payload_bytes::text as payload_bytes
    from sessions s, (${sums("messages")}) m, (${sums("events")}) e where s.id = ${sessionId}`;
}

function names(stream: StreamName, alias: string): SQL {
  return sql.raw(SUMS.map((name) => `${alias}.${name}::text as ${stream}_${name}`).join(", "));
}

const SUMS = [
  "rows",
  // The rows, and their bytes, that the session counts: all but feedback.
  "counted",
  "bytes",
  // The last number of the last row.
  "last",
  // The first row that does not begin where the row before it ends, and the number of such rows.
  "wrong",
  "expected",
  "holes",
] as const;

/** `head` is the counter of the session. */
type Sums = Readonly<Record<(typeof SUMS)[number] | "head", bigint>>;

function sumsOf(stream: StreamName, fields: Fields | undefined): Sums {
  const members = [...SUMS, "head"].map((name) => [name, bigintOf(fields?.[`${stream}_${name}`])]);
  return Object.fromEntries(members);
}

const PAGE_ROWS_MAX = 500;

async function indexProblems(
  transaction: Transaction,
  sessionId: string,
): Promise<readonly string[]> {
  const problems: string[] = [];
  let after = "0";
  for (;;) {
    const page = await transaction.execute(sql`
      select seq::text as seq, event_type, payload, event_count, fragments from (
        select *, sum(${storedBytes("events")}) over (order by seq) - ${storedBytes("events")} as before
        from (
          select * from ${TABLE.events}
          where session_id = ${sessionId} and seq > ${after}::bigint and fragments is not null
          order by seq limit ${PAGE_ROWS_MAX}
        ) merged
      ) counted
      where before < ${PAGE_BYTES_MAX} order by seq`);
    for (const row of page) {
      const problem = indexProblem(row);
      if (problem === undefined) continue;
      problems.push(`events: the row at ${String(row["seq"])} does not expand: ${problem}`);
      if (problems.length === INDEXES_NAMED_MAX) return problems;
    }
    const last = page.at(-1);
    if (last === undefined) return problems;
    after = String(last["seq"]);
  }
}

const PAGE_BYTES_MAX = 4 * 1024 * 1024;

function indexProblem(row: Fields): string | undefined {
  const { event_type: type, payload, event_count: count, fragments } = row;
  if (!(fragments instanceof Uint8Array)) return "its index is no bytes";
  try {
    const merged = { eventType: String(type), payload: String(payload), eventCount: Number(count) };
    const [violation] = checkFragments(merged, decodeFragments(fragments));
    return violation && `${violation.field}: ${violation.description}`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
