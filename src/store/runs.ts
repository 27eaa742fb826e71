/**
 * The runs of a session, derived from its rows: each row carries the run that was open, so a run is
 * a stretch of rows. A RUN_STARTED after an end begins a new run; rows that do not conform begin
 * and end nothing (packages/agui/src/split-event.ts). No table or index of runs exists: a statement
 * walks the primary key over a bounded number of rows. The caller joins stretches cut by the bound
 * (`joined`).
 */
import { type SQL, sql } from "drizzle-orm";
import { bigintOf, type Database, type Fields } from "./database.ts";
import { sessionEvents } from "./schema.ts";
import { microsColumn } from "./columns.ts";

/** Rows that one statement reads. */
export const RUN_ROWS_LOOKED_AT_MAX = 20_000;

/** Payload bytes that one read of run events returns, or a single larger payload. */
const PAYLOADS_BYTES_MAX = 3 * 1024 * 1024;

/** A run, or the part of it that one statement read. */
export interface RunStretch {
  readonly runId: string;
  readonly firstSeq: bigint;
  readonly lastSeq: bigint;
  readonly startedAtMicros: bigint;
  /** The time when the last row was stored, by the database's clock. */
  readonly recordedAtMicros: bigint;
  readonly rawEvents: bigint;
  readonly rows: bigint;
  /** Payload bytes. */
  readonly bytes: bigint;
  readonly hasStart: boolean;
  /** From the row that ended it; undefined: the run, or this stretch, continues. */
  readonly end:
    | { readonly seq: bigint; readonly eventType: string; readonly atMicros: bigint }
    | undefined;
}

export type RunsReader = ReturnType<typeof createRunsReader>;

export function createRunsReader(
  database: Database,
  { rowsMax = RUN_ROWS_LOOKED_AT_MAX }: { readonly rowsMax?: number } = {},
) {
  return {
    /** The run that is open after this number; undefined: the next row begins another stretch. */
    async runOpenAt(sessionId: string, seq: bigint): Promise<string | undefined> {
      const [last] = await database.run(runOpenAtStatement(sessionId, seq));
      const runId = last?.["run_id"];
      return typeof runId === "string" ? runId : undefined;
    },
    async lookForRuns(sessionId: string, after: bigint) {
      const fields = await database.run(runsStatement(sessionId, { after, rowsMax }));
      const [first] = fields;
      const rows = bigintOf(first?.["looked_at"] ?? "0");
      return {
        stretches: fields.filter((one) => one["run_id"] !== null).map(stretchOf),
        /** All rows up to this number were read. */
        upTo: first === undefined ? after : bigintOf(first["up_to"]),
        more: rows >= BigInt(rowsMax),
      };
    },
    /** Payloads of some rows by their numbers; all of them, or fewer where they are large. */
    async payloadsOf(sessionId: string, seqs: readonly bigint[]) {
      const fields = await database.run(payloadsStatement(sessionId, seqs));
      return new Map(fields.map((row) => [bigintOf(row["seq"]), String(row["payload"])]));
    },
  };
}

const ENDS = sql`conformant and event_type in ('RUN_FINISHED', 'RUN_ERROR')`;
const STARTS = sql`conformant and event_type = 'RUN_STARTED'`;

/** Any of its rows but the end shows the open run. Exported for the plan test. */
export function runOpenAtStatement(sessionId: string, seq: bigint): SQL {
  return sql`
    select case when ${ENDS} then null else run_id end as run_id
    from ${sessionEvents}
    where session_id = ${sessionId} and seq <= ${seq.toString()}::bigint
    order by seq desc limit 1`;
}

/** With rows without a run: the page must know how far it got. Exported for the plan test. */
export function runsStatement(
  sessionId: string,
  { after, rowsMax }: { readonly after: bigint; readonly rowsMax: number },
): SQL {
  return sql`
    with seen as (
      select seq, event_type, event_count, run_id, created_at, completed_at, recorded_at,
        octet_length(payload) as bytes, ${ENDS} as ends, ${STARTS} as starts
      from ${sessionEvents}
      where session_id = ${sessionId} and seq > ${after.toString()}::bigint
      order by seq limit ${rowsMax}
    ), bordered as (
      select *, case
          when run_id is distinct from lag(run_id) over upwards then 1
          when starts and lag(ends) over upwards then 1
          else 0 end as begins
      from seen window upwards as (order by seq)
    ), stretched as (
      select *, sum(begins) over (order by seq) as stretch from bordered
    )
    select run_id, min(seq) as first_seq, max(seq + event_count - 1) as last_seq,
      ${microsColumn(sql`(array_agg(created_at order by seq))[1]`)} as started_at,
      ${microsColumn(sql`max(recorded_at)`)} as recorded_at,
      sum(event_count)::bigint as raw_events, count(*) as rows, sum(bytes)::bigint as bytes,
      (array_agg(starts order by seq))[1] as has_start,
      max(seq) filter (where ends) as end_seq,
      (array_agg(event_type order by seq desc) filter (where ends))[1] as end_type,
      ${microsColumn(sql`(array_agg(coalesce(completed_at, created_at) order by seq desc) filter (where ends))[1]`)} as end_at,
      sum(count(*)) over ()::bigint as looked_at,
      max(max(seq + event_count - 1)) over () as up_to
    from stretched group by stretch, run_id order by first_seq`;
}

function payloadsStatement(sessionId: string, seqs: readonly bigint[]): SQL {
  const numbers = JSON.stringify(seqs.map(String));
  return sql`
    select seq, payload from (
      select seq, payload, sum(octet_length(payload)) over (order by seq) as bytes,
        row_number() over (order by seq) as place
      from ${sessionEvents}
      where session_id = ${sessionId} and seq = any (
        array(select json_array_elements_text(${numbers}::text::json)::bigint))
    ) wanted
    where bytes <= ${PAYLOADS_BYTES_MAX} or place = 1
    order by seq`;
}

/** Joins two consecutive parts of one run; undefined when they are two runs. */
export function joined(left: RunStretch, right: RunStretch): RunStretch | undefined {
  if (left.runId !== right.runId || left.end !== undefined) return undefined;
  return {
    ...left,
    lastSeq: right.lastSeq,
    recordedAtMicros:
      right.recordedAtMicros > left.recordedAtMicros
        ? right.recordedAtMicros
        : left.recordedAtMicros,
    rawEvents: left.rawEvents + right.rawEvents,
    rows: left.rows + right.rows,
    bytes: left.bytes + right.bytes,
    end: right.end,
  };
}

function stretchOf(fields: Fields): RunStretch {
  const endSeq = fields["end_seq"];
  return {
    runId: String(fields["run_id"]),
    firstSeq: bigintOf(fields["first_seq"]),
    lastSeq: bigintOf(fields["last_seq"]),
    startedAtMicros: bigintOf(fields["started_at"]),
    recordedAtMicros: bigintOf(fields["recorded_at"]),
    rawEvents: bigintOf(fields["raw_events"]),
    rows: bigintOf(fields["rows"]),
    bytes: bigintOf(fields["bytes"]),
    hasStart: fields["has_start"] === true,
    end:
      endSeq === null
        ? undefined
        : {
            seq: bigintOf(endSeq),
            eventType: String(fields["end_type"]),
            atMicros: bigintOf(fields["end_at"]),
          },
  };
}
