/**
 * Reads the sessions that changed, for watches (live/session-watch.ts), in the order of
 * `changed_at`. A page has each session once, in its newest state. The time is taken while the
 * transaction writes to `sessions`, so the horizon of feeds (live/horizon.ts) holds for it too.
 */
import { and, inArray, isNotNull, or, type SQL, sql } from "drizzle-orm";
import { isoOf, microsColumn } from "./columns.ts";
import type { Database } from "./database.ts";
import { sessions } from "./schema.ts";
import {
  belongsTo,
  isInState,
  micros,
  RECORD,
  type SessionFilter,
  type SessionRecord,
  type SessionScope,
} from "./sessions.ts";

/** The changes that one page looks at, whether they pass the filter or not. */
const LOOKED_AT_MAX = 1_000;
/** A page ends before the session that would exceed it, but has at least one. */
const PAGE_BYTES_MAX = 1_048_576;
/** Times, numbers and ids. */
const SESSION_OVERHEAD_BYTES = 512;

/** A place between two changes. */
export interface ChangeCursor {
  readonly atMicros: bigint;
  /** Empty: before every change of that time. */
  readonly sessionId: string;
}

export interface ChangesRequest {
  readonly scope: SessionScope;
  readonly filter: SessionFilter;
  readonly after: ChangeCursor;
}

export interface ChangedSession {
  readonly record: SessionRecord;
  readonly isDeleted: boolean;
  readonly changedAtMicros: bigint;
}

export interface ChangesPage {
  readonly changed: readonly ChangedSession[];
  /** The last examined change, if the page ended before the last one; undefined: the list is complete. */
  readonly cutAt: ChangeCursor | undefined;
}

export async function readChanges(
  database: Database,
  request: ChangesRequest,
): Promise<ChangesPage> {
  const found = await database.run(changesStatement(request), { prepare: false });
  const places = found.map((row) => ({
    fits: row["fits"] === true,
    at: { atMicros: BigInt(String(row["changed_at"])), sessionId: String(row["id"]) },
  }));
  const fitting = places.filter(({ fits }) => fits);
  const isTooLarge = Number(found[0]?.["passed"] ?? 0) > fitting.length;
  const isFull = Number(found[0]?.["looked_at"] ?? 0) >= LOOKED_AT_MAX;
  const cut = isTooLarge ? fitting.at(-1) : isFull ? places.at(-1) : undefined;
  const changed = await readChanged(
    database,
    fitting.map(({ at }) => at.sessionId),
  );
  return { changed, cutAt: cut?.at };
}

/**
 * The places of the changes that fit, and the last examined one. The index has only the time: the
 * changes of one time are one batch, and are sorted here. Exported for the plan test.
 */
export function changesStatement({ scope, filter, after }: ChangesRequest): SQL {
  const from = sql`${isoOf(after.atMicros)}::timestamptz`;
  const passes = and(
    or(
      belongsTo(scope, filter) ?? sql`true`,
      // Its labels are erased, and its project is not.
      and(isNotNull(sessions.erasedAt), belongsTo(scope, { ...filter, labels: {} })),
    ),
    or(isNotNull(sessions.deletedAt), isInState(filter) ?? sql`true`),
  );
  return sql`
    select id, ${microsColumn(sql`changed_at`)} as changed_at, fits, looked_at, passed
    from (
      select *, passes and (bytes <= ${PAGE_BYTES_MAX} or place = 1) as fits
      from (
        select *, row_number() over upwards as number, count(*) over () as looked_at,
          count(*) filter (where passes) over () as passed,
          count(*) filter (where passes) over upwards as place,
          sum(bytes_of_one) filter (where passes) over upwards as bytes
        from (
          select id, changed_at, (${passes}) is true as passes, octet_length(name)
            + coalesce(octet_length(labels), 0) + coalesce(octet_length(annotations), 0)
            + coalesce(octet_length(capabilities), 0) + coalesce(octet_length(prompt), 0)
            + coalesce(octet_length(hold), 0) + ${SESSION_OVERHEAD_BYTES}::int as bytes_of_one
          from (
            select * from sessions
            where changed_at >= ${from} and (changed_at, id) > (${from}, ${after.sessionId})
            order by changed_at, id limit ${LOOKED_AT_MAX}
          ) sessions
        ) found
        window upwards as (order by changed_at, id rows between unbounded preceding and current row)
      ) counted
    ) chosen
    where fits or number = looked_at
    order by number`;
}

/** Their state may be newer than their place. */
async function readChanged(
  database: Database,
  ids: readonly string[],
): Promise<readonly ChangedSession[]> {
  if (ids.length === 0) return [];
  const rows = await database.query((drizzle) =>
    drizzle
      .select({
        ...RECORD,
        isDeleted: sql<boolean>`${sessions.deletedAt} is not null`,
        changedAtMicros: micros(sessions.changedAt),
      })
      .from(sessions)
      .where(inArray(sessions.id, [...ids]))
      .orderBy(sessions.changedAt, sessions.id),
  );
  return rows.map(({ isDeleted, changedAtMicros, ...record }) => ({
    record,
    isDeleted,
    changedAtMicros,
  }));
}
