/**
 * The chains of rows (store/migrations/chain.sql): reads their heads, to be stored elsewhere, and computes
 * them again from the rows. They are compared at each noted head and at the session's own, and the first
 * span that differs is named.
 *
 *   chain_from ── rows ──► noted head ── rows ──► noted head ── rows ──► head of the session
 *      cut                   equal?                 equal?                 equal?
 */
import { TABLE } from "../store/columns.ts";
import { bigintOf, type Database, type Field, sql, type Transaction } from "../store/database.ts";
import type { StreamName } from "../store/rows.ts";
import { inSnapshot, refuseUnknown, sessionIds } from "./snapshot.ts";

/** The chain of one stream of a session, after the row that ends at this number. */
export interface Head {
  readonly stream: StreamName;
  readonly number: bigint;
  /** Hexadecimal digits. */
  readonly chain: string;
}

interface HeadsCall {
  /** Undefined: every session, also deleted ones. */
  readonly sessionIds: readonly string[] | undefined;
  /** Called for each session, with the heads of covered streams; false: no further one is wanted. */
  readonly read: (sessionId: string, heads: readonly Head[]) => Promise<boolean>;
  readonly signal: AbortSignal;
}

export function readHeads(database: Database, call: HeadsCall): Promise<void> {
  return inSnapshot(database, async (transaction) => {
    await refuseUnknown(transaction, call.sessionIds);
    for await (const id of sessionIds(transaction, call.sessionIds)) {
      if (call.signal.aborted) return;
      const chains = await storedChains(transaction, id);
      // The next append begins a new chain where this one does not end at the counter.
      const heads = chains.flatMap(({ head, counter }) => (head?.number === counter ? [head] : []));
      if (!(await call.read(id, heads))) return;
    }
  });
}

export interface Comparison {
  /** Rows that no chain covers: instances without INTEGRITY=chain, or older ones, stored them. */
  readonly uncovered: number;
  readonly problems: readonly string[];
  /** Heads that cannot be compared any more, because their rows were erased. */
  readonly notes: readonly string[];
}

/** Computes the chains of a session, and compares them with its heads, and with noted ones. */
export async function compareChains(
  transaction: Transaction,
  sessionId: string,
  noted: readonly Head[] = [],
): Promise<Comparison> {
  const [problems, notes]: [string[], string[]] = [[], []];
  let uncovered = 0;
  for (const chain of await storedChains(transaction, sessionId)) {
    const { stream, head, from, cut } = chain;
    const { below, above } = await uncoveredRows(transaction, sessionId, chain);
    uncovered += below + above;
    if (below > 0 && cut !== null)
      problems.push(`${stream}: a row is below ${from}, and the rows up to there were erased`);
    const points = noted.filter((one) => one.stream === stream);
    points.sort((one, other) => (one.number < other.number ? -1 : 1));
    if (head !== undefined) points.push(head);
    let [next, before] = [from, cut];
    for (const point of points) {
      const { number, chain: expected } = point;
      const problem = point === head ? undefined : whyLost(number, chain);
      if (problem !== undefined) {
        problems.push(`${stream}: the number ${number} was noted, and ${problem}`);
      } else if (number < from - 1n && point !== head) {
        notes.push(`${stream}: ${number} was noted, and cannot be compared: its row was erased`);
      } else {
        const span = { sessionId, stream, before, next, number };
        const isEqual = (await chainAfter(transaction, span)) === expected;
        if (!isEqual)
          problems.push(`${stream}: the rows from ${next} to ${number} are not those of the chain`);
        if (!isEqual) break;
        [next, before] = [number + 1n, expected];
      }
    }
  }
  return { uncovered, problems, notes };
}

/** Why the chain does not reach a noted number; undefined: it does, or the row was erased. */
function whyLost(number: bigint, { counter, head, from, cut }: StoredChain): string | undefined {
  if (number > counter) return `the session is at ${counter}`;
  if (head === undefined || number > head.number) return "no chain covers it";
  return number < from && cut === null ? `the chain begins at ${from}` : undefined;
}

interface StoredChain {
  readonly stream: StreamName;
  readonly counter: bigint;
  /** Undefined: no row is covered. */
  readonly head: Head | undefined;
  /** Rows from this number on are covered. */
  readonly from: bigint;
  /** The chain before that number; null: no covered row was erased. */
  readonly cut: string | null;
}

async function storedChains(
  transaction: Transaction,
  sessionId: string,
): Promise<readonly StoredChain[]> {
  const [row] = await transaction.execute(sql`
    select message_seq::text as message_seq, encode(message_chain, 'hex') as message_chain,
      message_chain_seq::text as message_chain_seq, coalesce(message_chain_from, 1)::text as message_chain_from,
      encode(message_chain_cut, 'hex') as message_chain_cut, event_seq::text as event_seq,
      encode(event_chain, 'hex') as event_chain, event_chain_seq::text as event_chain_seq,
      coalesce(event_chain_from, 1)::text as event_chain_from, encode(event_chain_cut, 'hex') as event_chain_cut
    from sessions where id = ${sessionId}`);
  return (["messages", "events"] as const).map((stream) => {
    const field = (name: string): Field | undefined => row?.[`${stream.slice(0, -1)}_${name}`];
    const [chain, cut] = [field("chain"), field("chain_cut")];
    return {
      stream,
      counter: bigintOf(field("seq")),
      head:
        typeof chain === "string"
          ? { stream, number: bigintOf(field("chain_seq")), chain }
          : undefined,
      from: bigintOf(field("chain_from")),
      cut: typeof cut === "string" ? cut : null,
    };
  });
}

/** Below the first covered number, and above the last one. */
async function uncoveredRows(
  transaction: Transaction,
  sessionId: string,
  { stream, from, head }: StoredChain,
): Promise<{ readonly below: number; readonly above: number }> {
  const [row] = await transaction.execute(sql`
    select count(*) filter (where seq < ${from.toString()}::text::bigint)::int as below,
      count(*) filter (where seq > ${(head?.number ?? 0n).toString()}::text::bigint)::int as above
    from ${TABLE[stream]} where session_id = ${sessionId}`);
  return { below: Number(row?.["below"]), above: Number(row?.["above"]) };
}

interface Span {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** The chain before it; null: it is the beginning. */
  readonly before: string | null;
  readonly next: bigint;
  readonly number: bigint;
}

/** As its rows give it. */
async function chainAfter(
  transaction: Transaction,
  { sessionId, stream, before, next, number }: Span,
): Promise<string> {
  const [row] = await transaction.execute(sql`
    select encode(chain, 'hex') as chain from ledger_chain(${sessionId}::text, ${stream}::text,
      decode(${before}::text, 'hex'), ${next.toString()}::text::bigint, ${number.toString()}::text::bigint)`);
  return String(row?.["chain"]);
}
