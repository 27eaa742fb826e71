/** The columns of a stored row as every read selects them, and the row made from them. */
import { type SQL, sql, type SQLWrapper } from "drizzle-orm";
import type { Fields } from "./database.ts";
import type { EventRow, MessageRow, RowOf, StreamName } from "./rows.ts";
import { sessionEvents, sessionMessages } from "./schema.ts";

export const TABLE = { messages: sessionMessages, events: sessionEvents } as const;

/** The bytes of a row that count for its limits: its long texts and byte fields. */
export function storedBytes(stream: StreamName): SQL {
  return stream === "messages"
    ? sql`octet_length(payload) + coalesce(octet_length(sender), 0)`
    : sql`octet_length(payload) + coalesce(octet_length(run_id), 0) + coalesce(octet_length(fragments), 0)`;
}

/** Without session_id: a read covers one session, and its caller knows the id. */
export function columnsOf(stream: StreamName): SQL {
  return stream === "messages"
    ? sql`seq, id, event_type, payload, ${microsColumn(sql`created_at`)} as created_at,
        ${microsColumn(sql`sent_at`)} as sent_at, sender`
    : sql`seq, id, event_type, payload, ${microsColumn(sql`created_at`)} as created_at,
        ${microsColumn(sql`completed_at`)} as completed_at, event_count, run_id, fragments, conformant`;
}

export function rowOf<S extends StreamName>(stream: S, sessionId: string, fields: Fields): RowOf<S>;
export function rowOf(
  stream: StreamName,
  sessionId: string,
  fields: Fields,
): MessageRow | EventRow {
  const base = {
    sessionId,
    seq: BigInt(text(fields["seq"])),
    id: text(fields["id"]),
    eventType: text(fields["event_type"]),
    payload: text(fields["payload"]),
    createdAtMicros: BigInt(text(fields["created_at"])),
  };
  if (stream === "messages") {
    return {
      stream,
      ...base,
      sentAtMicros: optionalMicros(fields["sent_at"]),
      sender: optionalText(fields["sender"]),
    };
  }
  const fragments = fields["fragments"];
  return {
    stream,
    ...base,
    completedAtMicros: optionalMicros(fields["completed_at"]),
    eventCount: Number(fields["event_count"]),
    runId: optionalText(fields["run_id"]) ?? "",
    fragments: fragments instanceof Uint8Array ? fragments : undefined,
    conformant: fields["conformant"] === true,
  };
}

function text(field: Fields[string] | undefined): string {
  if (typeof field !== "string") throw new TypeError("a column that cannot be null is not text");
  return field;
}

function optionalText(field: Fields[string] | undefined): string | undefined {
  return typeof field === "string" ? field : undefined;
}

function optionalMicros(field: Fields[string] | undefined): bigint | undefined {
  return typeof field === "string" ? BigInt(field) : undefined;
}

/**
 * Converts microseconds to and from the text that PostgreSQL reads exactly. Never through a float
 * or a Date alone: a Date has milliseconds, and `interval * number` and to_timestamp() calculate in
 * doubles.
 */

const MICROS_PER_MS = 1_000n;

/**
 * Formatting the date takes most of the time here, and the rows of a batch share few milliseconds.
 */
let printed = { ms: 0n, text: "1970-01-01T00:00:00.000" };

/** For the years 1 to 9999. */
export function isoOf(micros: bigint): string {
  let ms = micros / MICROS_PER_MS;
  let rest = micros % MICROS_PER_MS;
  if (rest < 0n) {
    ms -= 1n;
    rest += MICROS_PER_MS;
  }
  if (printed.ms !== ms) {
    printed = { ms, text: new Date(Number(ms)).toISOString().slice(0, -1) };
  }
  return rest === 0n ? `${printed.text}Z` : `${printed.text}${rest.toString().padStart(3, "0")}Z`;
}

/** A timestamptz column as microseconds; extract() gives numeric, which is exact. */
export function microsColumn(column: SQLWrapper): SQL {
  return sql`(extract(epoch from ${column}) * 1000000)::bigint`;
}
