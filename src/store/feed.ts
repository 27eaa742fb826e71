/**
 * Reads the rows of all sessions in the order of `recorded_at`, for feeds (live/feeds.ts). It is
 * the clock when a transaction holds all of its sessions, so it rises with the numbers of each
 * session. Across sessions a transaction may commit after one with a later time. `look` gives
 * live/horizon.ts the time up to which no such row can come any more.
 */
import { type SQL, sql } from "drizzle-orm";
import { bytesOf } from "./pages.ts";
import { anyOf, COLUMNS, columnsOf, isoOf, microsColumn, rowOf, TABLE } from "./columns.ts";
import { type RawRow, type Database, SERVER, startOf } from "./database.ts";
import type { RowOf, StreamName } from "./rows.ts";
import { type ChangeCursor, type ChangesRequest, readChanges } from "./session-changes.ts";

/** The rows that one filtered page reads; the page then ends with its last position. */
const FILTERED_ROWS_LOOKED_AT_MAX = 4_000;

/** One answer of the database about its clock and its writers. */
export interface Look {
  /** The clock of the database, read before the writers were listed. */
  readonly atMicros: bigint;
  /** Transactions that may hold rows with an earlier `recorded_at` which are not visible yet. */
  readonly writers: readonly string[];
  readonly server: string;
}

/** A place between two rows of a feed. */
export interface FeedPosition extends ChangeCursor {
  readonly seq: bigint;
}

export interface FeedFilter {
  /** Undefined: every project, and sessions without one. */
  readonly projectId: string | undefined;
  readonly eventTypes: readonly string[];
}

export interface FeedPageRequest<S extends StreamName> extends FeedFilter {
  readonly stream: S;
  readonly after: FeedPosition;
  /** The page has rows that were recorded before this time. */
  readonly beforeMicros: bigint;
  readonly rowsMax: number;
  /** A page ends before the row that would exceed it, but has at least one row. */
  readonly bytesMax: number;
}

export interface FeedRow<S extends StreamName> {
  readonly row: RowOf<S>;
  readonly projectId: string | undefined;
  readonly recordedAtMicros: bigint;
}

export interface FeedPage<S extends StreamName> {
  readonly rows: readonly FeedRow<S>[];
  /** Every row up to this place was examined. */
  readonly position: FeedPosition;
}

export type FeedReader = ReturnType<typeof createFeedReader>;

export function createFeedReader(database: Database) {
  return {
    look: () => look(database),
    page: <S extends StreamName>(request: FeedPageRequest<S>) => readFeedPage(database, request),
    changes: (request: ChangesRequest) => readChanges(database, request),
  };
}

/**
 * A writer locks the table `sessions` before it takes a time, until its rows are visible. Every
 * role may read pg_locks, unlike other roles' transactions in pg_stat_activity. Reads, VACUUM and
 * the building of an index lock in other modes. statement_timestamp() is from before the statement.
 */
async function look(database: Database): Promise<Look> {
  const [fields] = await database.run(sql`
    select ${microsColumn(sql`statement_timestamp()`)} as at, ${SERVER} as server,
      (select string_agg(distinct virtualtransaction, ' ') from pg_locks
        where locktype = 'relation' and relation = to_regclass('sessions')
          and database = (select oid from pg_database where datname = current_database())
          and mode in ('RowShareLock', 'RowExclusiveLock') and granted) as writers`);
  const writers = fields?.["writers"];
  database.onAnswer(fields?.["server"]);
  return {
    atMicros: BigInt(String(fields?.["at"])),
    writers: typeof writers === "string" ? writers.split(" ") : [],
    server: startOf(fields?.["server"]),
  };
}

async function readFeedPage<S extends StreamName>(
  database: Database,
  request: FeedPageRequest<S>,
): Promise<FeedPage<S>> {
  const { stream, beforeMicros } = request;
  const found: ReturnType<typeof foundRow<S>>[] = [];
  const onRow = (columns: RawRow): unknown => found.push(foundRow(stream, columns));
  // Planned for each call: the best plan depends on the times, and a page is worth many plans.
  await database.columns(feedStatement(request), onRow, { prepare: false });
  const rows = found.filter(({ fits }) => fits).map(({ row }) => row);
  const isCut = (found[0]?.passed ?? 0) > rows.length;
  const isFull = (found[0]?.lookedAt ?? 0) >= lookedAtMaxOf(request);
  const last = isCut ? rows.at(-1) : found.at(-1)?.row;
  const position =
    (isCut || isFull) && last !== undefined
      ? { atMicros: last.recordedAtMicros, sessionId: last.row.sessionId, seq: last.row.seq }
      : { atMicros: beforeMicros, sessionId: "", seq: 0n };
  return { rows, position };
}

/** The columns of `feedStatement`, in its order: those of the row come first. */
function foundRow<S extends StreamName>(stream: S, columns: RawRow) {
  const [sessionId, projectId, fits, recordedAt, lookedAt, passed] = columns
    .slice(COLUMNS[stream])
    .map((column) => column?.toString());
  const row: FeedRow<S> = {
    row: rowOf(stream, sessionId ?? "", columns),
    projectId,
    recordedAtMicros: BigInt(recordedAt ?? ""),
  };
  return { row, fits: fits === "t", lookedAt: Number(lookedAt), passed: Number(passed) };
}

function lookedAtMaxOf({ rowsMax, projectId, eventTypes }: FeedPageRequest<StreamName>): number {
  const isFiltered = projectId !== undefined || eventTypes.length > 0;
  return isFiltered ? FILTERED_ROWS_LOOKED_AT_MAX : rowsMax;
}

/**
 * The rows that fit, and the last examined row. The index has only the time: rows of one time are
 * one batch, and are sorted here. The list of ids makes each look-up of a session a walk down its key,
 * for any statistics. Exported for the plan test.
 */
export function feedStatement(request: FeedPageRequest<StreamName>): SQL {
  const { stream, after, beforeMicros, rowsMax, bytesMax, projectId, eventTypes } = request;
  const from = sql`${isoOf(after.atMicros)}::timestamptz`;
  const passes = sql.join([
    sql`s.id is not null and s.deleted_at is null`,
    projectId === undefined ? sql`` : sql` and s.project_id = ${projectId}`,
    eventTypes.length === 0 ? sql`` : sql` and event_type = ${anyOf(eventTypes)}`,
  ]);
  return sql`
    with wanted as materialized (
      select * from ${TABLE[stream]}
      where recorded_at >= ${from} and recorded_at < ${isoOf(beforeMicros)}::timestamptz
        and (recorded_at, session_id, seq) > (${from}, ${after.sessionId}, ${after.seq.toString()}::bigint)
      order by recorded_at, session_id, seq limit ${lookedAtMaxOf(request)}
    )
    select ${columnsOf(stream)}, session_id, project_id, fits,
      ${microsColumn(sql`recorded_at`)} as recorded_at, looked_at, passed
    from (
      select *, passes and place <= ${rowsMax} and (bytes <= ${bytesMax} or place = 1) as fits
      from (
        select *, row_number() over upwards as number, count(*) over () as looked_at,
          count(*) filter (where passes) over () as passed,
          count(*) filter (where passes) over upwards as place,
          sum(${bytesOf(stream)}) filter (where passes) over upwards as bytes
        from (
          select wanted.*, s.project_id, ${passes} as passes
          from wanted left join (
            select id, project_id, deleted_at from sessions
            where id = any (array(select session_id from wanted))
          ) s on s.id = wanted.session_id
        ) found
        window upwards as (order by recorded_at, session_id, seq
          rows between unbounded preceding and current row)
      ) counted
    ) chosen
    where fits or number = looked_at
    order by number`;
}
