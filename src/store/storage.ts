/**
 * Sums of what is stored. One session is walked by its primary key, a bounded number of rows with
 * each statement. All sessions have two sources, because no statement may read a whole table of rows:
 *
 *   totals     the counts that each session's row already has; exact
 *   by type    a sample of the pages of the two tables of rows, scaled up; exact while the tables are
 *              smaller than the sample
 */
import { and, getTableName, isNull, type SQL, sql } from "drizzle-orm";
import { storedBytes, TABLE } from "./columns.ts";
import { bigintOf, type Database, type Fields } from "./database.ts";
import type { StreamName } from "./rows.ts";
import { sessionRuns, sessions, sessionTexts, sessionToolCalls } from "./schema.ts";
import { belongsTo, type SessionScope } from "./sessions.ts";

/** Rows that one statement about a session reads. */
const SUMMED_ROWS_MAX = 20_000;
/** Pages of a table that a sample reads: 4 MiB, and up to about 25,000 rows. */
const SAMPLED_PAGES_MAX = 512;
/** A service with VALIDATION=lenient stores any type, so their number has no other limit. */
const TYPES_MAX = 100;

/** The rows of one type. */
export interface TypeSum {
  /** Undefined: all types beyond the largest ones. */
  readonly eventType: string | undefined;
  readonly rows: bigint;
  /** The events before compression. */
  readonly rawEvents: bigint;
  readonly bytes: bigint;
  /** The bytes that the same events would take without compression. */
  readonly rawBytes: bigint;
}

export interface SessionStorage {
  /** The largest first. */
  readonly types: readonly TypeSum[];
  /** All rows up to this number were read. */
  readonly upTo: bigint;
  /** True when there are more rows. */
  readonly more: boolean;
}

interface SumsRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly after: bigint;
}

export interface Totals {
  readonly sessions: bigint;
  /** Numbers that were given, also those of erased rows. */
  readonly messages: bigint;
  readonly rawEvents: bigint;
  readonly rows: bigint;
  readonly bytes: bigint;
}

export interface SampledTypes {
  readonly types: readonly TypeSum[];
  /** The share of the table that was read, above 0 and at most 1. */
  readonly share: number;
}

export interface StorageReader {
  sumsOf(request: SumsRequest): Promise<SessionStorage>;
  totals(scope: SessionScope): Promise<Totals>;
  sampledTypes(stream: StreamName, scope: SessionScope): Promise<SampledTypes>;
  /** The size of all tables and indexes on disk. */
  diskBytes(): Promise<bigint>;
}

export function createStorageReader(
  database: Database,
  { rowsMax = SUMMED_ROWS_MAX, pagesMax = SAMPLED_PAGES_MAX } = {},
): StorageReader {
  return {
    async sumsOf(request) {
      const fields = await database.run(sumsStatement({ ...request, rowsMax }));
      const [first] = fields;
      return {
        types: largest(fields.map(typeSumOf)),
        upTo: first === undefined ? request.after : bigintOf(first["up_to"]),
        more: first !== undefined && bigintOf(first["looked_at"]) >= BigInt(rowsMax),
      };
    },
    async totals(scope) {
      const [fields] = await database.run(sql`
        select count(*) as sessions, coalesce(sum(message_seq), 0)::bigint as messages,
          coalesce(sum(event_seq), 0)::bigint as raw_events,
          coalesce(sum(row_count), 0)::bigint as rows,
          coalesce(sum(payload_bytes), 0)::bigint as bytes
        from ${sessions} where ${livingIn(scope)}`);
      return {
        sessions: bigintOf(fields?.["sessions"]),
        messages: bigintOf(fields?.["messages"]),
        rawEvents: bigintOf(fields?.["raw_events"]),
        rows: bigintOf(fields?.["rows"]),
        bytes: bigintOf(fields?.["bytes"]),
      };
    },
    async sampledTypes(stream, scope) {
      const fields = await database.run(sampleStatement({ stream, scope, pagesMax }));
      return {
        types: largest(fields.filter((one) => one["rows"] !== null).map(typeSumOf)),
        share: Number(fields[0]?.["share"]),
      };
    },
    async diskBytes() {
      const derived = [sessionTexts, sessionRuns, sessionToolCalls];
      const sizes = [sessions, TABLE.messages, TABLE.events, ...derived].map(
        (table) => sql`pg_total_relation_size(${getTableName(table)}::regclass)`,
      );
      const [fields] = await database.run(sql`select ${sql.join(sizes, sql` + `)} as bytes`);
      return bigintOf(fields?.["bytes"]);
    },
  };
}

/** The sums of one group of rows; `bytes` and `raw_bytes` count alike, so that they compare. */
function sumsOf(stream: StreamName): SQL {
  if (stream === "messages") {
    return sql`count(*) as rows, count(*) as raw_events,
      sum(${storedBytes(stream)})::bigint as bytes, sum(${storedBytes(stream)})::bigint as raw_bytes`;
  }
  return sql`count(*) as rows, sum(event_count)::bigint as raw_events,
    sum(${storedBytes(stream)})::bigint as bytes, sum(${RAW_BYTES})::bigint as raw_bytes`;
}

// The events of a merged row differ from its payload only in `delta` and `timestamp`, so each has the
// rest of the payload, and together they have the text. The text is found by a pattern: PostgreSQL's
// own functions of JSON fail at half a surrogate pair, which a payload may have.
const DELTA = String.raw`"delta"\s*:\s*"((?:[^"\\]|\\.)*)"`;
const RAW_BYTES = sql`case when event_count = 1
  then octet_length(payload) + coalesce(octet_length(run_id), 0)
  else event_count::bigint * (octet_length(payload) + coalesce(octet_length(run_id), 0))
    - (event_count - 1)::bigint
      * coalesce(octet_length(substring(payload from ${DELTA}::text)), 0)
  end`;

/** Exported for the plan test. */
export function sumsStatement({
  stream,
  sessionId,
  after,
  rowsMax,
}: SumsRequest & { readonly rowsMax: number }): SQL {
  const last = stream === "messages" ? sql`seq` : sql`seq + event_count - 1`;
  return sql`
    select event_type, ${sumsOf(stream)}, sum(count(*)) over ()::bigint as looked_at,
      max(max(${last})) over () as up_to
    from (
      select * from ${TABLE[stream]}
      where session_id = ${sessionId} and seq > ${after.toString()}::bigint
      order by seq limit ${rowsMax}
    ) walked
    group by event_type order by bytes desc`;
}

/**
 * Exported for the plan test. The same pages are read each time, so figures do not jump while the
 * table stays as it is. Rows of deleted sessions are left out, as they are of the totals.
 */
export function sampleStatement({
  stream,
  scope,
  pagesMax,
}: {
  readonly stream: StreamName;
  readonly scope: SessionScope;
  readonly pagesMax: number;
}): SQL {
  const pages = sql`(pg_relation_size(${getTableName(TABLE[stream])}::regclass) / current_setting('block_size')::int)`;
  const share = sql`least(1, ${pagesMax}::float8 / greatest(1, ${pages}))`;
  const scaled = (name: string): SQL => sql`round(sum(${sql.raw(name)}) / ${share})::bigint`;
  return sql`
    with sampled as materialized (
      select session_id, event_type, ${sumsOf(stream)}
      from ${TABLE[stream]} tablesample system (100 * ${share}) repeatable (0)
      group by session_id, event_type
    ), summed as (
      select event_type, ${scaled("rows")} as rows, ${scaled("raw_events")} as raw_events,
        ${scaled("bytes")} as bytes, ${scaled("raw_bytes")} as raw_bytes
      from sampled join ${sessions} on ${sessions.id} = sampled.session_id
      where ${livingIn(scope)} group by event_type
    )
    select read.share, summed.*
    from (select ${share} as share) read left join summed on true order by bytes desc`;
}

function livingIn(scope: SessionScope): SQL | undefined {
  return and(isNull(sessions.deletedAt), belongsTo({ scope }));
}

/** The types with the most bytes; the others become one sum without a name. */
function largest(sums: readonly TypeSum[]): readonly TypeSum[] {
  const others = sums.slice(TYPES_MAX).reduce<TypeSum | undefined>(
    (all, one) => ({
      eventType: undefined,
      rows: (all?.rows ?? 0n) + one.rows,
      rawEvents: (all?.rawEvents ?? 0n) + one.rawEvents,
      bytes: (all?.bytes ?? 0n) + one.bytes,
      rawBytes: (all?.rawBytes ?? 0n) + one.rawBytes,
    }),
    undefined,
  );
  return [...sums.slice(0, TYPES_MAX), ...(others === undefined ? [] : [others])];
}

function typeSumOf(fields: Fields): TypeSum {
  return {
    eventType: String(fields["event_type"]),
    rows: bigintOf(fields["rows"]),
    rawEvents: bigintOf(fields["raw_events"]),
    bytes: bigintOf(fields["bytes"]),
    rawBytes: bigintOf(fields["raw_bytes"]),
  };
}
