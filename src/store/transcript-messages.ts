/**
 * Reads message rows as a fold reads them: in the order of their numbers, a bounded page at a time,
 * with the time of the commit, which places them between the events.
 */
import { type SQL, sql } from "drizzle-orm";
import { boundedPage } from "./bounded-page.ts";
import { microsColumn, optionalBigintOf, optionalTextOf } from "./columns.ts";
import { type Database, type Fields, SERVER } from "./database.ts";
import type { MessageRow } from "./rows.ts";
import { sessionMessages } from "./schema.ts";

/** The times by which the rows of both streams are put into one order; microseconds since 1970. */
export interface RowTimes {
  /**
   * The time of the commit, from the clock of the database. Both streams of a session are written
   * under one lock, so this is the order of their commits. The rows of an import share one time.
   */
  readonly recordedMicros: number;
  readonly createdMicros: number;
}

/** The payload is empty if the reader does not want it. */
export interface TranscriptMessageRow extends RowTimes, Omit<MessageRow, "sessionId"> {
  readonly eventCount: 1;
  readonly idempotencyKey: string | undefined;
}

export interface TranscriptMessagesAfter {
  readonly sessionId: string;
  readonly after: bigint;
  readonly rowsMax: number;
  /** A page ends before the row that would exceed it, but has at least one row. */
  readonly bytesMax: number;
  /** False: the reader wants the payloads of `user` rows only. */
  readonly isWhole: boolean;
}

/** Contiguous rows, of every type. */
export async function readTranscriptMessages(
  database: Database,
  request: TranscriptMessagesAfter,
): Promise<readonly TranscriptMessageRow[]> {
  const [head, ...rows] = await database.run(transcriptMessagesStatement(request));
  database.onAnswer(head?.["server"]);
  return rows.map((fields) => {
    const times = timesOf(fields);
    return {
      stream: "messages",
      seq: BigInt(String(fields["seq"])),
      eventCount: 1,
      id: String(fields["id"]),
      eventType: String(fields["event_type"]),
      payload: String(fields["payload"]),
      sender: optionalTextOf(fields["sender"]),
      createdAtMicros: BigInt(times.createdMicros),
      sentAtMicros: optionalBigintOf(fields["sent_at"]),
      idempotencyKey: optionalTextOf(fields["idempotency_key"]),
      ...times,
    };
  });
}

/** Exported for the plan test. */
export function transcriptMessagesStatement(request: TranscriptMessagesAfter): SQL {
  const { sessionId, after, isWhole } = request;
  return boundedPage(request, {
    rows: sql`
      select *, case when event_type = 'user' or ${isWhole} then payload else '' end as text
      from ${sessionMessages} where session_id = ${sessionId} and seq > ${after.toString()}::bigint`,
    size: sql`octet_length(text)`,
    head: sql`, null as id, null as event_type, null as idempotency_key, null as sender, null as payload,
      null as recorded, null as created, null as sent_at, ${SERVER} as server`,
    columns: sql`seq, id, event_type, idempotency_key, sender, text, ${TIMES},
      ${microsColumn(sql`sent_at`)}, null`,
  });
}

/**
 * Doubles, which hold microseconds exactly until the year 2255. An exact numeric takes PostgreSQL
 * several times as long, for every row of a session.
 */
export const TIMES: SQL = sql`date_part('epoch', recorded_at) as recorded, date_part('epoch', created_at) as created`;

export function timesOf(fields: Fields): RowTimes {
  return {
    recordedMicros: microsOf(fields["recorded"]),
    createdMicros: microsOf(fields["created"]),
  };
}

const MICROS_PER_SECOND = 1_000_000;

function microsOf(seconds: Fields[string] | undefined): number {
  return Math.round(Number(seconds) * MICROS_PER_SECOND);
}
