/**
 * Reads rows of one session in the order of their numbers. Every statement names the session and a
 * range of numbers, walks the primary key, and has three bounds: rows returned, bytes returned, and
 * rows read, because a filter may match almost no row.
 *
 *   without a filter   one statement: rowsMax + 1 rows are found, to know whether more rows exist
 *   with a filter      first a border, ROWS_LOOKED_AT_MAX rows away or the head of the session, then
 *                      the rows before it that match; what matches beyond comes with the next page
 */
import { type SQL, sql } from "drizzle-orm";
import {
  anyOf,
  COLUMNS,
  columnsOf,
  isoOf,
  microsColumn,
  optionalBigintOf,
  rowOf,
  type RowForm,
  storedBytes,
  TABLE,
} from "./columns.ts";
import { boundedPage, direction } from "./bounded-page.ts";
import { type Database, SERVER } from "./database.ts";
import { lastSeqOf, type RowOf, type SessionHead, type StreamName } from "./rows.ts";
import { sessionEvents } from "./schema.ts";
import { type RowTimes, TIMES, timesOf } from "./transcript-messages.ts";

/** The rows that one filtered page reads; then the page ends and reports how far it got. */
export const ROWS_LOOKED_AT_MAX = 20_000;

/** Ids, times, names: at most 128 + 36 + 64 + 128 bytes of text and the tags around them. */
const ROW_OVERHEAD_BYTES = 512;

/** Contiguous rows, for watchers below their window and windows below their head. */
export interface PageAfter<S extends StreamName> extends RowForm {
  readonly stream: S;
  readonly sessionId: string;
  /** A number (as `resolveCursor` returns it): the page has rows whose first number is above it. */
  readonly after: bigint;
  readonly rowsMax: number;
  /** Of payloads and other large fields. A page has at least one row. */
  readonly bytesMax: number;
}

export interface PageRequest<S extends StreamName> extends PageAfter<S> {
  /** The page has rows whose first number is below it; undefined: no bound. */
  readonly before?: bigint | undefined;
  readonly descending?: boolean;
  /** Undefined: every row. */
  readonly filter?: PageFilter | undefined;
  /** For a caller that expands: a page ends with the row that reaches this number of raw events. */
  readonly eventsMax?: number;
  /** The page has the times by which the rows of both streams are in one order. */
  readonly recorded?: boolean;
}

export interface PageFilter {
  /** Empty means all. */
  readonly eventTypes: readonly string[];
  /** Empty means all; for events only. */
  readonly runId?: string;
  readonly createdAfterMicros?: bigint | undefined;
  readonly createdBeforeMicros?: bigint | undefined;
  /** Rows that overlap this span of time; for events only. */
  readonly span?: TimeSpan;
}

/** Both ends are inclusive; undefined: no end. */
export interface TimeSpan {
  readonly startMicros: bigint | undefined;
  readonly endMicros: bigint | undefined;
}

export interface Page<S extends StreamName> {
  readonly rows: readonly RowOf<S>[];
  /** The cursor upwards: all rows up to this number were read. */
  readonly nextAfter: bigint;
  /** The cursor downwards: all rows from this number on were read. */
  readonly nextBefore: bigint;
  /** More rows may exist in the direction of the read. */
  readonly hasMore: boolean;
  /** Of each row, if the request wants them. */
  readonly recordedMicros: readonly bigint[] | undefined;
  /** As the same statement found it; undefined: no such session. */
  readonly session: SessionHead | undefined;
}

export async function readPage<S extends StreamName>(
  database: Database,
  request: PageRequest<S>,
): Promise<Page<S>> {
  const border = request.filter === undefined ? NO_BORDER : await borderOf(database, request);
  const { stream, sessionId, descending } = request;
  let head: readonly (string | undefined)[] | undefined;
  const rows: RowOf<S>[] = [];
  const recordedMicros: bigint[] = [];
  await database.columns(pageStatement(request, border), (columns) => {
    if (head === undefined) {
      head = columns.map((column) => column?.toString());
      return;
    }
    rows.push(rowOf(stream, sessionId, columns, request));
    if (request.recorded) recordedMicros.push(BigInt(String(columns[COLUMNS[stream]])));
  });
  const [end, , server, session] = head ?? [];
  database.onAnswer(server);
  const cut = end !== undefined;
  const found = {
    rows,
    recordedMicros: request.recorded ? recordedMicros : undefined,
    session: session === undefined ? undefined : headIn(session),
  };
  const last = rows.at(-1);
  const first = rows[0];
  if (descending) {
    const lowest = last?.seq ?? request.before ?? 0n;
    return {
      ...found,
      nextAfter: first === undefined ? request.after : lastSeqOf(first),
      nextBefore: cut ? lowest : (border.seq ?? lowest),
      hasMore: cut || border.more,
    };
  }
  const highest = last === undefined ? request.after : lastSeqOf(last);
  return {
    ...found,
    nextAfter: cut || border.seq === undefined || border.seq < highest ? highest : border.seq,
    nextBefore: first?.seq ?? request.before ?? 0n,
    hasMore: cut || border.more,
  };
}

/** Written by `pageStatement`. */
function headIn(text: string): SessionHead {
  const [messageSeq = "", eventSeq = "", deleted] = text.split(" ");
  return {
    messageSeq: BigInt(messageSeq),
    eventSeq: BigInt(eventSeq),
    deleted: deleted === "true",
  };
}

/** The end of a filtered page; the row at `seq` is still read, and undefined means "to the end". */
interface PageBorder {
  readonly seq: bigint | undefined;
  readonly more: boolean;
}
const NO_BORDER: PageBorder = { seq: undefined, more: false };

/** Read before the page: every row up to this head is visible to the next statement. */
async function borderOf(database: Database, request: PageRequest<StreamName>): Promise<PageBorder> {
  const { stream, sessionId, descending = false, before } = request;
  const head = stream === "messages" ? sql`message_seq` : sql`event_seq`;
  const [fields] = await database.run(sql`
    select (select seq from ${TABLE[stream]} where ${rangeOf(request)}
        order by seq ${direction(descending)} offset ${ROWS_LOOKED_AT_MAX} limit 1) as beyond,
      (select ${head} from sessions where id = ${sessionId}) as head`);
  const beyond = fields?.["beyond"];
  if (typeof beyond === "string") {
    // The row beyond is not read; the next page begins at its number.
    return { seq: descending ? BigInt(beyond) + 1n : BigInt(beyond) - 1n, more: true };
  }
  const end = fields?.["head"];
  if (descending || typeof end !== "string") return NO_BORDER;
  const isBelow = before !== undefined && before <= BigInt(end);
  return { seq: isBelow ? before - 1n : BigInt(end), more: false };
}

/** Exported for the plan test. */
export function pageStatement(request: PageRequest<StreamName>, { seq }: PageBorder): SQL {
  const { stream, sessionId, descending = false, filter, eventsMax, recorded } = request;
  const inside =
    seq === undefined
      ? sql``
      : sql`and seq ${sql.raw(descending ? ">=" : "<=")} ${seq.toString()}::bigint`;
  const head = sql`(
    select message_seq || ' ' || event_seq || ' ' || (deleted_at is not null)::text
    from sessions where id = ${sessionId})`;
  const none = sql.raw(", null".repeat(COLUMNS[stream] - 4));
  return boundedPage(request, {
    rows: sql`select * from ${TABLE[stream]} where ${rangeOf(request)} ${inside} ${matching(filter)}`,
    // A filter looks at many rows for each one that it finds: so it looks only once.
    once: filter !== undefined,
    size: bytesOf(stream),
    ...(eventsMax === undefined ? {} : { events: eventsOf(request) }),
    head: sql`, null, ${SERVER}, ${head} ${none} ${recorded ? sql`, null` : sql``}`,
    columns: sql`${columnsOf(stream)} ${recorded ? sql`, ${microsColumn(sql`recorded_at`)}` : sql``}`,
  });
}

function matching(wanted: PageFilter | undefined): SQL {
  if (wanted === undefined) return sql``;
  const { eventTypes, runId = "", createdAfterMicros: from, createdBeforeMicros: to } = wanted;
  return sql.join([
    eventTypes.length === 0 ? sql`` : sql` and event_type = ${anyOf(eventTypes)}`,
    runId === "" ? sql`` : sql` and run_id = ${runId}`,
    isAt(sql`created_at >=`, from),
    isAt(sql`created_at <`, to),
    // A row lasts from its creation to its completion, or is a single moment.
    isAt(sql`coalesce(completed_at, created_at) >=`, wanted.span?.startMicros),
    isAt(sql`created_at <=`, wanted.span?.endMicros),
  ]);
}

function isAt(comparison: SQL, micros: bigint | undefined): SQL {
  return micros === undefined ? sql`` : sql` and ${comparison} ${isoOf(micros)}::timestamptz`;
}

/** The size of a row in an answer: its long fields, and an upper bound of the rest. */
export function bytesOf(stream: StreamName): SQL {
  return sql`${storedBytes(stream)} + ${ROW_OVERHEAD_BYTES}::int`;
}

/** A row without an index is returned whole, as one event. */
function eventsOf({ before }: PageRequest<StreamName>): SQL {
  const end =
    before === undefined
      ? sql`seq + event_count`
      : sql`least(seq + event_count, ${before.toString()}::bigint)`;
  return sql`case when fragments is null then 1 else ${end} - seq end`;
}

function rangeOf({ sessionId, after, before }: PageRequest<StreamName>): SQL {
  const from = sql`session_id = ${sessionId} and seq > ${after.toString()}::bigint`;
  return before === undefined ? from : sql`${from} and seq < ${before.toString()}::bigint`;
}

/**
 * Reads only the fields of event rows that a fold needs: a row with all of its columns costs twice
 * as much to read, here and in PostgreSQL, and a client waits for all rows of the session.
 */

export interface TranscriptRow extends RowTimes {
  readonly stream: "events";
  /** The number of its first event. */
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly eventCount: number;
  readonly conformant: boolean;
  /** The time of the last of its events; only for the last row of a read. */
  readonly newestMicros: bigint | undefined;
}

export type TranscriptRowsAfter = Omit<PageAfter<"events">, "stream">;

/** Contiguous rows, as `pageAfter` returns them. */
export async function readTranscriptRows(
  database: Database,
  request: TranscriptRowsAfter,
): Promise<readonly TranscriptRow[]> {
  const [head, ...rows] = await database.run(transcriptRowsStatement(request));
  database.onAnswer(head?.["server"]);
  const newestMicros = optionalBigintOf(head?.["newest"]);
  return rows.map((fields, at) => ({
    stream: "events",
    ...timesOf(fields),
    seq: BigInt(String(fields["seq"])),
    eventType: String(fields["event_type"]),
    payload: String(fields["payload"]),
    eventCount: Number(fields["event_count"]),
    conformant: fields["conformant"] === true,
    newestMicros: at === rows.length - 1 ? newestMicros : undefined,
  }));
}

/** Exported for the plan test. */
export function transcriptRowsStatement(request: TranscriptRowsAfter): SQL {
  const rows = sql`select * from ${sessionEvents}
    where session_id = ${request.sessionId} and seq > ${request.after.toString()}::bigint`;
  const newest = sql`(${rows} and seq < coalesce(cut.seq, 9223372036854775807) order by seq desc limit 1)`;
  return boundedPage(request, {
    rows,
    size: sql`octet_length(payload)`,
    head: sql`, null as event_type, null as payload, null as event_count, null as conformant,
      null as recorded, null as created, ${SERVER} as server,
      (select ${microsColumn(sql`coalesce(completed_at, created_at)`)} from ${newest} newest) as newest`,
    columns: sql`seq, event_type, payload, event_count, conformant, ${TIMES}, null, null`,
  });
}

interface RowAddress<S extends StreamName> {
  readonly stream: S;
  readonly sessionId: string;
  readonly seq: bigint;
}

/** For the answers to repeated pushes. Undefined: erased meanwhile. */
export async function readRow<S extends StreamName>(
  database: Database,
  { stream, sessionId, seq }: RowAddress<S>,
): Promise<RowOf<S> | undefined> {
  let row: RowOf<S> | undefined;
  const statement = sql`
    select ${columnsOf(stream)} from ${TABLE[stream]}
    where session_id = ${sessionId} and seq = ${seq.toString()}::bigint`;
  await database.columns(statement, (columns) => (row = rowOf(stream, sessionId, columns)));
  return row;
}
