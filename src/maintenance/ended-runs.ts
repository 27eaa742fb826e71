/**
 * Finds what retention may erase: the sessions that may have old rows by their index, the first row of each,
 * then its rows in order, a bounded number per statement.
 */
import { bigintOf, type Database, type SQL, sql } from "../store/database.ts";
import { sessionEvents } from "../store/schema.ts";
import { isoOf, microsColumn, optionalBigintOf } from "../store/columns.ts";

interface FirstRow extends Border {
  /** The row belongs to the open run. */
  readonly isOpen: boolean;
}

/** A session in the order of the index: by the time before which retention has looked at its rows. */
export interface UnlookedSession {
  readonly id: string;
  readonly micros: bigint;
  readonly rows: number;
  readonly bytes: number;
}

interface UnlookedRequest {
  readonly cutoffMicros: bigint;
  readonly after: Pick<UnlookedSession, "id" | "micros"> | undefined;
  readonly sessionsMax: number;
}

export async function unlookedSessions(
  database: Database,
  request: UnlookedRequest,
): Promise<readonly UnlookedSession[]> {
  const rows = await database.run(unlookedStatement(request));
  return rows.map((row) => ({
    id: String(row["id"]),
    micros: bigintOf(row["micros"]),
    rows: Number(row["row_count"]),
    bytes: Number(row["payload_bytes"]),
  }));
}

/** Exported for the plan test. */
export function unlookedStatement({ cutoffMicros, after, sessionsMax }: UnlookedRequest): SQL {
  const behind =
    after === undefined
      ? sql``
      : sql`and (retained_until, id) > (${isoOf(after.micros)}::timestamptz, ${after.id})`;
  return sql`
    select id, row_count, payload_bytes, ${microsColumn(sql`retained_until`)} as micros from sessions
    where erased_at is null and hold is null
      and retained_until < ${isoOf(cutoffMicros)}::timestamptz ${behind}
    order by retained_until, id limit ${sessionsMax}`;
}

/**
 * Undefined: no such session. Without a first row the session has no events, or is erased or held.
 */
export async function candidateOf(
  database: Database,
  sessionId: string,
): Promise<{ readonly first: FirstRow | undefined } | undefined> {
  const [row] = await database.run(candidateStatement(sessionId));
  if (row === undefined) return undefined;
  const seq = optionalBigintOf(row["seq"]);
  if (seq === undefined) return { first: undefined };
  const recordedAtMicros = bigintOf(row["recorded_at"]);
  return { first: { seq, recordedAtMicros, isOpen: row["is_open"] === true } };
}

/** Exported for the plan test. */
export function candidateStatement(sessionId: string): SQL {
  return sql`
    select beginning.seq, ${microsColumn(sql`beginning.recorded_at`)} as recorded_at,
      beginning.run_id = s.open_run_id as is_open
    from sessions s left join (
      select seq, recorded_at, run_id from ${sessionEvents}
      where session_id = ${sessionId} order by seq limit 1
    ) beginning on s.erased_at is null and s.hold is null
    where s.id = ${sessionId}`;
}

interface EndedRunsRequest {
  readonly sessionId: string;
  /** The first number to read. */
  readonly from: bigint;
  /** A run must have ended before this time. */
  readonly cutoffMicros: bigint;
  readonly rowsMax: number;
}

interface EndedRunsFound {
  /** The last row of the last run that ended early enough; undefined: this part has no such run. */
  readonly border: Border | undefined;
  /** The time of the first row that is too young; no run after it ended early enough. */
  readonly youngMicros: bigint | undefined;
  /** The next number to read; undefined: no more rows. */
  readonly next: bigint | undefined;
}

export interface Border {
  readonly seq: bigint;
  readonly recordedAtMicros: bigint;
}

export async function lookForEndedRuns(
  database: Database,
  request: EndedRunsRequest,
): Promise<EndedRunsFound> {
  const [row] = await database.run(endedRunsStatement(request));
  const [seq, youngMicros] = [optionalBigintOf(row?.["border"]), optionalBigintOf(row?.["young"])];
  const isCut = Number(row?.["looked_at"]) >= request.rowsMax;
  // The last row of a run shows whether the next row begins another run, so that row is read again.
  const next = seq === undefined ? (optionalBigintOf(row?.["last"]) ?? 0n) : seq + 1n;
  return {
    border:
      seq === undefined ? undefined : { seq, recordedAtMicros: bigintOf(row?.["recorded_at"]) },
    youngMicros,
    next: isCut && youngMicros === undefined ? next : undefined,
  };
}

/** The rule is in the function ledger_ended_runs (store/migrations/retain.sql). */
function endedRunsStatement({ sessionId, from, cutoffMicros, rowsMax }: EndedRunsRequest): SQL {
  return sql`
    select border, ${microsColumn(sql`border_recorded_at`)} as recorded_at,
      ${microsColumn(sql`young_recorded_at`)} as young, looked_at, last_seq as last
    from ledger_ended_runs(${sessionId}::text, ${from.toString()}::bigint,
      ${isoOf(cutoffMicros)}::timestamptz, ${rowsMax}::integer)`;
}

/** The session has no row before this time that may be erased and is not. */
export async function setLooked(
  database: Database,
  sessionId: string,
  untilMicros: bigint,
): Promise<void> {
  await database.run(sql`
    update sessions set retained_until = ${isoOf(untilMicros)}::timestamptz where id = ${sessionId}`);
}
