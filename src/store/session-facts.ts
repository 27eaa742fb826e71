/**
 * What a list says of its sessions beyond their records: the end of the last run, the tool calls that it asks
 * about, and what the index of search has derived (search/index-unit.ts). Each is read by statements of one
 * session, some of them at once, and only if a caller asks for it: no push pays for it.
 */
import { type SQL, sql } from "drizzle-orm";
import { microsColumn } from "./columns.ts";
import { bigintOf, type Database, type Field, type Fields } from "./database.ts";
import { sessionEvents, sessionRuns, sessionTexts, sessionToolCalls } from "./schema.ts";

/** A run's end is its last row, or near to it. */
const ROWS_LOOKED_AT_MAX = 32;

const READ_AT_ONCE_MAX = 16;

/** The end of the last ended run of a session. */
export interface RunEnd {
  readonly runId: string;
  readonly seq: bigint;
  readonly eventType: string;
  readonly atMicros: bigint;
  /** Undefined when it is large. */
  readonly payload: string | undefined;
  /** Payloads of CUSTOM events in the rows before it that are in its run and may be questions of a graph. */
  readonly asked: readonly string[];
}

/** By session; none for a session whose last end is not among its newest rows. */
export async function readRunEnds(
  database: Database,
  sessionIds: readonly string[],
  { payloadBytesMax }: { readonly payloadBytesMax: number },
): Promise<ReadonlyMap<string, RunEnd>> {
  return await readEach(sessionIds, async (sessionId) => {
    const [row] = await database.run(runEndStatement(sessionId, payloadBytesMax));
    if (row === undefined) return undefined;
    return {
      runId: String(row["run_id"] ?? ""),
      seq: bigintOf(row["seq"]),
      eventType: String(row["event_type"]),
      atMicros: bigintOf(row["at"]),
      payload: typeof row["payload"] === "string" ? row["payload"] : undefined,
      asked: textsOf(row["asked"]),
    };
  });
}

async function readEach<T>(
  sessionIds: readonly string[],
  read: (sessionId: string) => Promise<T | undefined>,
): Promise<ReadonlyMap<string, T>> {
  const found = new Map<string, T>();
  for (let from = 0; from < sessionIds.length; from += READ_AT_ONCE_MAX) {
    const ids = sessionIds.slice(from, from + READ_AT_ONCE_MAX);
    const answers = await Promise.all(ids.map(read));
    for (const [index, one] of answers.entries()) {
      const id = ids[index];
      if (one !== undefined && id !== undefined) found.set(id, one);
    }
  }
  return found;
}

function runEndStatement(sessionId: string, payloadBytesMax: number): SQL {
  return sql`
    with newest as (
      select * from ${sessionEvents} where session_id = ${sessionId}
      order by seq desc limit ${ROWS_LOOKED_AT_MAX}
    )
    select seq, event_type, run_id, ${microsColumn(sql`coalesce(completed_at, created_at)`)} as at,
      case when octet_length(payload) <= ${payloadBytesMax} then payload end as payload,
      array_to_json(array(
        select payload from newest custom where custom.run_id = ended.run_id and custom.seq < ended.seq and conformant
          and event_type = 'CUSTOM' and payload like '%on_interrupt%' and octet_length(payload) <= ${payloadBytesMax}
        order by seq))::text as asked
    from newest ended
    where conformant and event_type in ('RUN_FINISHED', 'RUN_ERROR')
    order by seq desc limit 1`;
}

const CALL_ROWS_LOOKED_AT_MAX = 256;
/** Of all rows that are read; the newest ones count first. */
const CALL_ROWS_BYTES_MAX = 1024 * 1024;

/** Payloads of rows in which tool calls begin and get arguments, in order: those among the newest rows. */
export async function readCallPayloads(
  database: Database,
  sessionId: string,
): Promise<readonly string[]> {
  const rows = await database.run(sql`
    select payload from (
      select seq, payload, sum(octet_length(payload)) over (order by seq desc) as bytes from (
        select seq, event_type, payload from ${sessionEvents} where session_id = ${sessionId}
        order by seq desc limit ${CALL_ROWS_LOOKED_AT_MAX}
      ) newest
      where event_type in ('TOOL_CALL_START', 'TOOL_CALL_ARGS', 'TOOL_CALL_CHUNK')
    ) counted
    where bytes <= ${CALL_ROWS_BYTES_MAX} order by seq`);
  return rows.map(({ payload }) => String(payload));
}

export interface SessionFacts {
  readonly lastText: string;
  readonly lastRole: string;
  readonly runs: number;
  readonly durationMs: number;
  readonly inputTokens: bigint;
  readonly outputTokens: bigint;
  readonly models: readonly string[];
  readonly toolCalls: number;
  readonly failedToolCalls: number;
  readonly tools: readonly string[];
}

const FACT_TEXT_CHARS = 200;
const FACT_NAMES_MAX = 8;
const FACT_RUNS_MAX = 1_000;
const FACT_CALLS_MAX = 5_000;

export async function readFacts(
  database: Database,
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, SessionFacts>> {
  return await readEach(sessionIds, async (sessionId) => {
    const [row] = await database.run(factsStatement(sessionId));
    return row && factsOf(row);
  });
}

function factsStatement(sessionId: string): SQL {
  const lastOf = (stream: string): SQL => sql`(
    select role, left(text, ${FACT_TEXT_CHARS}) as text, created_at from ${sessionTexts}
    where session_id = ${sessionId} and stream = ${stream} and role in ('user', 'assistant') and part = 0
    order by seq desc limit 1)`;
  return sql`
    with runs as (
      select started_at, ended_at, usage from ${sessionRuns} where session_id = ${sessionId}
      order by seq desc limit ${FACT_RUNS_MAX}
    ), used as (
      select jsonb_array_elements(usage) as one from runs
    ), calls as (
      select name, has_failed from ${sessionToolCalls} where session_id = ${sessionId}
      order by seq desc limit ${FACT_CALLS_MAX}
    ), last as (
      select role, text from (${lastOf("events")} union all ${lastOf("messages")}) both_streams
      order by created_at desc limit 1
    )
    select (select role from last) as last_role, (select text from last) as last_text,
      (select count(*) from runs) as runs,
      (select extract(epoch from sum(ended_at - started_at)) * 1000 from runs) as duration_ms,
      (select trunc(sum((one->>'tokens_in')::numeric)) from used) as tokens_in,
      (select trunc(sum((one->>'tokens_out')::numeric)) from used) as tokens_out,
      array_to_json(array(select one->>'model' from used where one->>'model' is not null group by 1
        order by count(*) desc, 1 limit ${FACT_NAMES_MAX}))::text as models,
      (select count(*) from calls) as calls, (select count(*) from calls where has_failed) as failed_calls,
      array_to_json(array(select name from calls group by name
        order by count(*) desc, name limit ${FACT_NAMES_MAX}))::text as tools`;
}

function factsOf(row: Fields): SessionFacts {
  return {
    lastText: String(row["last_text"] ?? ""),
    lastRole: String(row["last_role"] ?? ""),
    runs: Number(row["runs"]),
    durationMs: Number(row["duration_ms"] ?? 0),
    inputTokens: bigintOf(row["tokens_in"] ?? "0"),
    outputTokens: bigintOf(row["tokens_out"] ?? "0"),
    models: textsOf(row["models"]),
    toolCalls: Number(row["calls"]),
    failedToolCalls: Number(row["failed_calls"]),
    tools: textsOf(row["tools"]),
  };
}

/** A list as JSON text. */
function textsOf(field: Field | undefined): readonly string[] {
  const texts: unknown = typeof field === "string" ? JSON.parse(field) : [];
  return Array.isArray(texts) ? texts.map(String) : [];
}
