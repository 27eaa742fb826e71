/** The columns of a row, as an append writes them and every read selects them, and the row made from them. */
import { type SQL, sql, type SQLWrapper } from "drizzle-orm";
import type { Arranged } from "./arrange.ts";
import type { Field, Fields, RawRow } from "./database.ts";
import {
  type EventRow,
  FEEDBACK_KEY,
  type MessageRow,
  type RowOf,
  type StreamName,
} from "./rows.ts";
import { sessionEvents, sessionMessages } from "./schema.ts";

export const TABLE = { messages: sessionMessages, events: sessionEvents } as const;

/** The bytes of a row that count for its limits: its long texts and byte fields. */
export function storedBytes(stream: StreamName): SQL {
  return stream === "messages"
    ? sql`octet_length(payload) + coalesce(octet_length(sender), 0)`
    : sql`octet_length(payload) + coalesce(octet_length(run_id), 0) + coalesce(octet_length(fragments), 0)`;
}

/** True for a row that the row and byte counts of its session have. */
export function isCounted(stream: StreamName): SQL {
  return stream === "messages"
    ? sql`true`
    : sql`(event_type = 'META' and idempotency_key ~ ${FEEDBACK_KEY}::text) is not true`;
}

/** Without session_id: a read covers one session, and its caller knows the id. */
export function columnsOf(stream: StreamName): SQL {
  return stream === "messages"
    ? sql`seq, id, event_type, payload, ${secondsColumn("created_at")}, ${secondsColumn("sent_at")}, sender`
    : sql`seq, id, event_type, payload, ${secondsColumn("created_at")}, ${secondsColumn("completed_at")},
        event_count, run_id, fragments, conformant`;
}

/** One JSON text: a statement is the same for any number of texts, and has at most 65,535 parameters. */
export function anyOf(texts: readonly string[]): SQL {
  return sql`any (array(select json_array_elements_text(${JSON.stringify(texts)}::text::json)))`;
}

/** A text of an answer; undefined: null, or no row. */
export function optionalTextOf(field: Field | undefined): string | undefined {
  return typeof field === "string" ? field : undefined;
}

/** A bigint of an answer, which the driver gives as text; undefined: null, or no row. */
export function optionalBigintOf(field: Field | undefined): bigint | undefined {
  return typeof field === "string" ? BigInt(field) : undefined;
}

export type ArrayType =
  | "integer"
  | "bigint"
  | "uuid"
  | "timestamptz"
  | "bytea"
  | "boolean"
  | "text";

/** Undefined: null. */
type Value = string | number | bigint | boolean | undefined;

/** The arrays with a value for each row or session; the same names are parameters of the function. */
export const MESSAGE_ARRAYS = {
  message_sessions: "integer",
  message_places: "bigint",
  message_ids: "uuid",
  message_types: "text",
  message_payloads: "text",
  message_created_at: "timestamptz",
  message_keys: "text",
  message_digests: "bytea",
  message_actors: "text",
  message_senders: "text",
  message_sent_at: "timestamptz",
} as const;

export type ValuesOf<Arrays> = Readonly<Record<keyof Arrays, Value>>;

export function messageValues(
  row: MessageRow,
  arranged: Arranged,
): ValuesOf<typeof MESSAGE_ARRAYS> {
  const { push, use, offset, isKeyed } = arranged;
  return {
    message_sessions: use.place,
    message_places: offset,
    message_ids: row.id,
    message_types: row.eventType,
    message_payloads: row.payload,
    message_created_at: isoOf(row.createdAtMicros),
    message_keys: isKeyed ? push.key : undefined,
    message_digests: isKeyed && push.digest ? hexOf(push.digest) : undefined,
    message_actors: push.actor,
    message_senders: row.sender,
    message_sent_at: row.sentAtMicros === undefined ? undefined : isoOf(row.sentAtMicros),
  };
}

export const EVENT_ARRAYS = {
  event_sessions: "integer",
  event_places: "bigint",
  event_ids: "uuid",
  event_types: "text",
  event_payloads: "text",
  event_created_at: "timestamptz",
  event_keys: "text",
  event_digests: "bytea",
  event_actors: "text",
  event_completed_at: "timestamptz",
  event_counts: "integer",
  event_run_ids: "text",
  event_fragments: "bytea",
  event_conformant: "boolean",
} as const;

export function eventValues(row: EventRow, arranged: Arranged): ValuesOf<typeof EVENT_ARRAYS> {
  const { push, use, offset, isKeyed, runId } = arranged;
  const { completedAtMicros } = row;
  return {
    event_sessions: use.place,
    event_places: offset,
    event_ids: row.id,
    event_types: row.eventType,
    event_payloads: row.payload,
    event_created_at: isoOf(row.createdAtMicros),
    event_keys: isKeyed ? push.key : undefined,
    event_digests: isKeyed && push.digest ? hexOf(push.digest) : undefined,
    event_actors: push.actor,
    event_completed_at: completedAtMicros === undefined ? undefined : isoOf(completedAtMicros),
    event_counts: row.eventCount === 1 ? undefined : row.eventCount,
    event_run_ids: runId,
    event_fragments: row.fragments && hexOf(row.fragments),
    event_conformant: row.conformant ? undefined : false,
  };
}

/** Bytes in an array literal. */
function hexOf(value: Uint8Array): string {
  return `"\\\\x${Buffer.from(value).toString("hex")}"`;
}

const MESSAGE = ["seq", "id", "event_type", "payload", "created_at", "sent_at", "sender"];

/** The columns of a message in a row that was read by names, among others. */
export function messageColumns(fields: Fields): RawRow {
  return MESSAGE.map((name) => {
    const field = fields[name];
    return typeof field === "string" ? Buffer.from(field) : null;
  });
}

/** The number of columns of `columnsOf`. */
export const COLUMNS = { messages: 7, events: 10 } as const;

export interface RowForm {
  /**
   * Makes each event row when it arrives, and keeps no column; undefined: rows with all fields. For a
   * caller that passes most rows on.
   */
  readonly eventOf?: ((sessionId: string, columns: RawRow) => EventRow) | undefined;
}

export function rowOf<S extends StreamName>(
  stream: S,
  sessionId: string,
  columns: RawRow,
  form?: RowForm,
): RowOf<S>;
export function rowOf(
  stream: StreamName,
  sessionId: string,
  columns: RawRow,
  { eventOf = decodedEvent }: RowForm = {},
): MessageRow | EventRow {
  if (stream === "events") return eventOf(sessionId, columns);
  const [seq, id, eventType, payload, createdAt, sentAt, sender] = columns;
  return {
    stream,
    sessionId,
    seq: BigInt(text(seq)),
    id: text(id),
    eventType: text(eventType),
    payload: text(payload),
    createdAtMicros: microsOf(text(createdAt)),
    sentAtMicros: optionalMicros(sentAt),
    sender: optionalText(sender),
  };
}

function decodedEvent(sessionId: string, columns: RawRow): EventRow {
  const [seq, id, eventType, payload, createdAt, completedAt] = columns;
  const [eventCount, runId, fragments, conformant] = columns.slice(6);
  return {
    stream: "events",
    sessionId,
    seq: BigInt(text(seq)),
    id: text(id),
    eventType: text(eventType),
    payload: text(payload),
    createdAtMicros: microsOf(text(createdAt)),
    completedAtMicros: optionalMicros(completedAt),
    eventCount: Number(text(eventCount)),
    runId: optionalText(runId) ?? "",
    fragments: byteaOf(fragments),
    conformant: text(conformant) === "t",
  };
}

/** PostgreSQL writes bytea as `\x` and hexadecimal digits. */
export function byteaOf(column: RawRow[number] | undefined): Buffer | undefined {
  const digits = optionalText(column);
  return digits === undefined ? undefined : Buffer.from(digits.slice(2), "hex");
}

function text(column: RawRow[number] | undefined): string {
  if (column !== undefined && column !== null) return column.toString();
  throw new TypeError("a column that cannot be null is null");
}

function optionalText(column: RawRow[number] | undefined): string | undefined {
  return column === undefined || column === null ? undefined : column.toString();
}

/** Of seconds with six decimals. */
function microsOf(seconds: string): bigint {
  return BigInt(seconds.replace(".", ""));
}

function optionalMicros(column: RawRow[number] | undefined): bigint | undefined {
  const seconds = optionalText(column);
  return seconds === undefined ? undefined : microsOf(seconds);
}

/** Exact microseconds: a Date has milliseconds, and to_timestamp() calculates in doubles. */

const MICROS_PER_MS = 1_000n;

/** Formatting takes most of the time here, and the rows of a batch share few milliseconds. */
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

/**
 * A timestamptz column as seconds with six decimals: extract() gives numeric, which is exact and
 * has that scale. A row with microseconds took 0.2 µs more of PostgreSQL's time.
 */
function secondsColumn(name: string): SQL {
  return sql.raw(`extract(epoch from ${name}) as ${name}`);
}

/** Of a time as PostgreSQL writes it in UTC, like `2026-11-27 10:00:00.5+00`. */
export function microsOfTime(time: string): bigint {
  const [seconds = "", fraction = ""] = time.replace(" ", "T").replace(/\+00$/, "").split(".");
  return BigInt(Date.parse(`${seconds}Z`)) * MICROS_PER_MS + BigInt(fraction.padEnd(6, "0"));
}

export function microsColumn(column: SQLWrapper): SQL {
  return sql`(extract(epoch from ${column}) * 1000000)::bigint`;
}
