/**
 * Reads only the fields of event rows that a fold needs: a row with all of its columns costs twice
 * as much to read, here and in PostgreSQL, and a client waits for all rows of the session.
 */
import { type SQL, sql } from "drizzle-orm";
import { type Database, SERVER } from "./database.ts";
import type { PageAfter } from "./reader.ts";
import { sessionEvents } from "./schema.ts";
import { microsColumn } from "./times.ts";

export interface LoggedRow {
  /** The number of its first event. */
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly eventCount: number;
  readonly conformant: boolean;
  /** The time of the last of its events; only for the last row of a read. */
  readonly newestMicros: bigint | undefined;
}

export type LoggedAfter = Omit<PageAfter<"events">, "stream">;

/** Contiguous rows, as `pageAfter` returns them. */
export async function readLogged(
  database: Database,
  request: LoggedAfter,
): Promise<readonly LoggedRow[]> {
  const rows = await database.run(loggedStatement(request));
  database.answeredBy(rows[0]?.["server"]);
  return rows.map((fields) => ({
    seq: BigInt(String(fields["seq"])),
    eventType: String(fields["event_type"]),
    payload: String(fields["payload"]),
    eventCount: Number(fields["event_count"]),
    conformant: fields["conformant"] === true,
    newestMicros: typeof fields["newest"] === "string" ? BigInt(fields["newest"]) : undefined,
  }));
}

/** Exported for the plan test. */
export function loggedStatement({ sessionId, after, rowsMax, bytesMax }: LoggedAfter): SQL {
  return sql`
    select seq, event_type, payload, event_count, conformant,
      case when lead(seq) over (order by seq) is null
        then ${microsColumn(sql`coalesce(completed_at, created_at)`)} end as newest,
      case when place = 1 then ${SERVER} end as server
    from (
      select *, row_number() over (order by seq) as place,
        sum(octet_length(payload)) over (order by seq) as bytes
      from (
        select * from ${sessionEvents}
        where session_id = ${sessionId} and seq > ${after.toString()}::bigint
        order by seq limit ${rowsMax}
      ) wanted
    ) counted
    where bytes <= ${bytesMax} or place = 1
    order by seq`;
}
