/** Runs and calls as they are stored (ledger_store_session_texts in session.sql), and open runs as they are read again. */
import type { ModelUsage } from "@session-ledger/agui/run-end";
import { isoOf, microsColumn } from "../store/columns.ts";
import { bigintOf, type Database, type Field, sql } from "../store/database.ts";
import { sessionRuns, sessionToolCalls } from "../store/schema.ts";
import type { FoundCall, FoundRun, OpenRun } from "./run-fold.ts";

/** Ids and names; PostgreSQL stores no U+0000. */
const TEXT_CHARS_MAX = 1_024;
/** Sums of many runs must stay numbers of 64 bits. */
const COUNT_MAX = 1e12;

export function runRow({ seq, lastSeq, runId, usage, ...run }: FoundRun) {
  return {
    n: String(seq),
    l: String(lastSeq),
    id: storedText(runId),
    sa: timeOf(run.startedAt),
    ft: timeOf(run.firstTextAt),
    ea: timeOf(run.endedAt),
    oc: run.outcome,
    us: usage.map(usageOf),
  };
}

/** As the views read it. */
function usageOf({ model, input, output, cachedInput, reasoning, cost }: ModelUsage) {
  return {
    model: model === undefined || model === "" ? undefined : storedText(model),
    tokens_in: bounded(input),
    tokens_out: bounded(output),
    cached_tokens_in: bounded(cachedInput),
    reasoning_tokens_out: bounded(reasoning),
    cost: bounded(cost),
  };
}

export function callRow({ seq, runSeq, id, name, startedAt, endedAt, hasFailed }: FoundCall) {
  return {
    n: String(seq),
    r: String(runSeq),
    id: storedText(id),
    nm: storedText(name),
    sa: timeOf(startedAt),
    ea: timeOf(endedAt),
    fl: hasFailed,
  };
}

/** The run that was open up to a number. */
export async function readOpenRun(
  database: Database,
  sessionId: string,
  upTo: bigint,
): Promise<OpenRun | undefined> {
  const [row] = await database.run(sql`
    select seq, last_seq, run_id, ${microsColumn(sql`started_at`)} as started,
      ${microsColumn(sql`first_text_at`)} as first_text
    from ${sessionRuns}
    where session_id = ${sessionId} and seq <= ${String(upTo)}::bigint and outcome = 'running'
    order by seq desc limit 1`);
  if (row === undefined) return undefined;
  const seq = bigintOf(row["seq"]);
  const run: FoundRun = {
    seq,
    lastSeq: bigintOf(row["last_seq"]),
    runId: String(row["run_id"]),
    startedAt: Number(row["started"]),
    firstTextAt: optional(row["first_text"]),
    endedAt: undefined,
    outcome: "running",
    usage: [],
  };
  return { run, calls: await readOpenCalls(database, sessionId, { seq, upTo }) };
}

async function readOpenCalls(
  database: Database,
  sessionId: string,
  { seq: runSeq, upTo }: { readonly seq: bigint; readonly upTo: bigint },
): Promise<readonly FoundCall[]> {
  const calls = await database.run(sql`
    select seq, call_id, name, ${microsColumn(sql`started_at`)} as started from ${sessionToolCalls}
    where session_id = ${sessionId} and seq > ${String(runSeq)}::bigint
      and seq <= ${String(upTo)}::bigint and ended_at is null`);
  return calls.map((call) => ({
    seq: bigintOf(call["seq"]),
    runSeq,
    id: String(call["call_id"]),
    name: String(call["name"]),
    startedAt: Number(call["started"]),
    endedAt: undefined,
    hasFailed: false,
  }));
}

/** Of all sessions, or of one. */
export async function countRuns(
  database: Database,
  sessionId: string | undefined,
): Promise<number> {
  const [row] = await database.run(sql`
    select count(*)::int as runs from ${sessionRuns}
    where ${sessionId ?? null}::text is null or session_id = ${sessionId ?? null}::text`);
  return Number(row?.["runs"]);
}

function optional(field: Field | undefined): number | undefined {
  return field === null || field === undefined ? undefined : Number(field);
}

function timeOf(micros: number | undefined): string | undefined {
  return micros === undefined ? undefined : isoOf(BigInt(micros));
}

function bounded(count: number | undefined): number | undefined {
  return count === undefined ? undefined : Math.min(count, COUNT_MAX);
}

function storedText(text: string): string {
  return text.slice(0, TEXT_CHARS_MAX).toWellFormed().replaceAll("\0", " ");
}
