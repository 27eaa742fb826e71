/**
 * How the last ended run of each of some sessions failed. No column has it: it is looked for among the
 * newest rows of a session, when a caller asks for it, and no push pays for it.
 */
import { sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { microsColumn } from "./columns.ts";
import { sessionEvents } from "./schema.ts";

/** A run's end is its last row, or near to it. */
const ROWS_LOOKED_AT_MAX = 32;

/** A page of 1,000 sessions would otherwise read up to a thousand payloads of any size. */
const PAYLOAD_BYTES_MAX = 4_096;

export interface Failure {
  readonly runId: string;
  readonly seq: bigint;
  readonly atMicros: bigint;
  /** The RUN_ERROR; undefined when it is large. */
  readonly payload: string | undefined;
}

/** Only sessions whose last ended run has failed are in the answer. */
export async function readFailures(
  database: Database,
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, Failure>> {
  if (sessionIds.length === 0) return new Map();
  const rows = await database.run(sql`
    select asked.id, ended.seq, ended.run_id, ended.at, ended.payload
    from json_array_elements_text(${JSON.stringify(sessionIds)}::text::json) as asked(id)
    cross join lateral (
      select seq, event_type, run_id,
        ${microsColumn(sql`coalesce(completed_at, created_at)`)} as at,
        case when octet_length(payload) <= ${PAYLOAD_BYTES_MAX} then payload end as payload
      from (
        select * from ${sessionEvents} where session_id = asked.id
        order by seq desc limit ${ROWS_LOOKED_AT_MAX}
      ) newest
      where conformant and event_type in ('RUN_FINISHED', 'RUN_ERROR')
      order by seq desc limit 1
    ) ended
    where ended.event_type = 'RUN_ERROR'`);
  return new Map(
    rows.map((row) => [
      String(row["id"]),
      {
        runId: String(row["run_id"] ?? ""),
        seq: BigInt(String(row["seq"])),
        atMicros: BigInt(String(row["at"])),
        payload: typeof row["payload"] === "string" ? row["payload"] : undefined,
      },
    ]),
  );
}
