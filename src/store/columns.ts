/** The columns of a stored row as every read selects them, and the row made from them. */
import { type SQL, sql } from "drizzle-orm";
import type { Fields } from "./transaction.ts";
import type { EventRow, MessageRow, RowOf, StreamName } from "./rows.ts";
import { sessionEvents, sessionMessages } from "./schema.ts";
import { microsColumn } from "./times.ts";

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
