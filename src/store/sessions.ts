/** The records of sessions: create, read, update. */
import { and, eq, isNotNull, isNull, type SQL, sql, type SQLWrapper } from "drizzle-orm";
import type { SelectResultFields } from "drizzle-orm/query-builders/select.types";
import { type Database, SERVER } from "./database.ts";
import type { SessionHead } from "./rows.ts";
import { sessions } from "./schema.ts";
import { anyOf, isoOf, microsOfTime } from "./columns.ts";

export type NewSession = Omit<
  typeof sessions.$inferInsert,
  "createdAt" | "updatedAt" | "changedAt"
>;

/** The sessions that a caller sees; undefined: all, with any value. */
export interface SessionScope {
  readonly projectId: string | undefined;
  readonly sessionId: string | undefined;
}

/** Where a session stands: the first of these that holds. */
export const STATE_NAMES = [
  "running",
  "waiting_for_runner",
  "waiting_for_person",
  "failed",
  "cancelled",
  "idle",
] as const;
export type SessionState = (typeof STATE_NAMES)[number];

/** The states of a session without an open run and without a waiting message, by the end of its last run. */
const AFTER_RUNS: Readonly<Record<string, SessionState>> = {
  interrupted: "waiting_for_person",
  error: "failed",
  cancelled: "cancelled",
};

export function stateOf({
  openRunId,
  waitingSinceMicros,
  runOutcome,
}: Pick<SessionRecord, "openRunId" | "waitingSinceMicros" | "runOutcome">): SessionState {
  if (openRunId !== null) return "running";
  if (waitingSinceMicros !== null) return "waiting_for_runner";
  return AFTER_RUNS[runOutcome ?? ""] ?? "idle";
}

/** The same rule; the index `sessions_asking` has the words of one of them. */
function standsAt(state: SessionState | undefined): SQL | undefined {
  if (state === undefined) return undefined;
  const [outcome] = Object.entries(AFTER_RUNS).find(([, after]) => after === state) ?? [];
  switch (state) {
    case "running":
      return isNotNull(sessions.openRunId);
    case "waiting_for_runner":
      return and(isNull(sessions.openRunId), isNotNull(sessions.waitingSince));
    case "waiting_for_person":
    case "failed":
    case "cancelled":
      return sql`open_run_id is null and waiting_since is null and run_outcome = ${sql.raw(`'${outcome}'`)}`;
    case "idle":
      return sql`open_run_id is null and waiting_since is null and coalesce(run_outcome, '') not in ('interrupted', 'error', 'cancelled')`;
  }
}

export interface SessionFilter {
  readonly running?: boolean;
  readonly waiting?: boolean;
  /** Undefined: any. */
  readonly state?: SessionState | undefined;
  /** The time of its newest row, or of its beginning; undefined: any. */
  readonly activeAfterMicros?: bigint | undefined;
  readonly activeBeforeMicros?: bigint | undefined;
  /** Empty: any. */
  readonly agentId?: string;
  /** A part of the name or the id; empty: any. */
  readonly query?: string;
  /** Empty: any. */
  readonly phase?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** Empty: any. */
  readonly projectId?: string;
  /** Empty: any. */
  readonly parentSessionId?: string;
}

/** Undefined fields stay unchanged. */
export interface SessionChange {
  readonly name?: string | undefined;
  readonly labels?: string | undefined;
  readonly annotations?: string | undefined;
  /** Null removes them. */
  readonly capabilities?: string | null | undefined;
  readonly phase?: string | undefined;
  readonly agentId?: string | undefined;
  readonly startTimeMicros?: bigint | undefined;
  readonly completionTimeMicros?: bigint | undefined;
}

/** The plain column: a sharded engine refuses expressions in RETURNING. */
export const micros = (column: SQLWrapper) =>
  sql`${column}`.mapWith((value: unknown) => microsOfTime(String(value)));
const optionalMicros = (column: SQLWrapper) =>
  sql`${column}`.mapWith((value: unknown): bigint | null => microsOfTime(String(value)));

export const RECORD = {
  id: sessions.id,
  name: sessions.name,
  projectId: sessions.projectId,
  phase: sessions.phase,
  prompt: sessions.prompt,
  createdByUserId: sessions.createdByUserId,
  llmModel: sessions.llmModel,
  agentId: sessions.agentId,
  parentSessionId: sessions.parentSessionId,
  forkedAtSeq: sessions.forkedAtSeq,
  forkedAtMessageSeq: sessions.forkedAtMessageSeq,
  labels: sessions.labels,
  annotations: sessions.annotations,
  capabilities: sessions.capabilities,
  startTimeMicros: optionalMicros(sessions.startTime),
  completionTimeMicros: optionalMicros(sessions.completionTime),
  createdAtMicros: micros(sessions.createdAt),
  updatedAtMicros: micros(sessions.updatedAt),
  lastActivityAtMicros: optionalMicros(sessions.lastActivityAt),
  messageSeq: sessions.messageSeq,
  eventSeq: sessions.eventSeq,
  rowCount: sessions.rowCount,
  payloadBytes: sessions.payloadBytes,
  openRunId: sessions.openRunId,
  runOutcome: sessions.runOutcome,
  runEndedAtMicros: optionalMicros(sessions.runEndedAt),
  waitingSinceMicros: optionalMicros(sessions.waitingSince),
  turnSeq: sessions.turnSeq,
  pendingCount: sessions.pendingCount,
  hold: sessions.hold,
};

export type SessionRecord = SelectResultFields<typeof RECORD>;

/**
 * The time of a change. A statement with parameters locks its tables when its parameters arrive, and takes
 * this time after that, when it is executed; so the horizon of feeds (live/horizon.ts) holds for it. It may
 * be from before a wait for the session, for which the horizon waits too.
 */
export const NOW = sql`statement_timestamp()`;

export async function createSession(
  database: Database,
  session: NewSession,
): Promise<SessionRecord> {
  const times = { createdAt: NOW, updatedAt: NOW, changedAt: NOW };
  const [record] = await database.query((drizzle) =>
    drizzle
      .insert(sessions)
      .values({ ...session, ...times })
      .returning(RECORD),
  );
  if (record === undefined) throw new Error("insert returned no row");
  return record;
}

/** Undefined when the session does not exist or was deleted. */
export async function getSession(
  database: Database,
  id: string,
): Promise<SessionRecord | undefined> {
  const [record] = await database.query((drizzle) =>
    drizzle
      .select(RECORD)
      .from(sessions)
      .where(and(eq(sessions.id, id), isNull(sessions.deletedAt))),
  );
  return record;
}

/** JSON text; undefined without any. */
export async function readCapabilities(
  database: Database,
  id: string,
): Promise<string | undefined> {
  const [session] = await database.query((drizzle) =>
    drizzle
      .select({ capabilities: sessions.capabilities })
      .from(sessions)
      .where(and(eq(sessions.id, id), isNull(sessions.deletedAt))),
  );
  return session?.capabilities ?? undefined;
}

/** The owner, also of a deleted session; undefined when the session never existed. */
export async function ownerOf(
  database: Database,
  id: string,
): Promise<{ readonly projectId: string | undefined } | undefined> {
  const [owner] = await database.query((drizzle) =>
    drizzle.select({ projectId: sessions.projectId }).from(sessions).where(eq(sessions.id, id)),
  );
  return owner && { projectId: owner.projectId ?? undefined };
}

export function listedIn({
  scope,
  filter,
}: {
  readonly scope: SessionScope;
  readonly filter?: SessionFilter;
}): SQL | undefined {
  return and(isNull(sessions.deletedAt), belongsTo(scope, filter), isInState(filter));
}

/** The filters that also hold for a deleted session. */
export function belongsTo(scope: SessionScope, filter: SessionFilter = {}): SQL | undefined {
  const { labels = {}, projectId = "", parentSessionId = "", agentId = "" } = filter;
  return and(
    scope.projectId === undefined ? undefined : eq(sessions.projectId, scope.projectId),
    scope.sessionId === undefined ? undefined : eq(sessions.id, scope.sessionId),
    projectId === "" ? undefined : eq(sessions.projectId, projectId),
    parentSessionId === "" ? undefined : eq(sessions.parentSessionId, parentSessionId),
    agentId === "" ? undefined : eq(sessions.agentId, agentId),
    Object.keys(labels).length === 0
      ? undefined
      : and(
          ...Object.entries(labels).flatMap((pair) => pair.map(mayHave)),
          sql`${sessions.labels} is not null and ledger_labels(${sessions.labels}) @> ledger_labels(${JSON.stringify(labels)}::text)`,
        ),
  );
}

/** Quickly seen: without an escape, a text of JSON is stored as it is. */
function mayHave(text: string): SQL {
  return sql`(strpos(${sessions.labels}, ${JSON.stringify(text)}) > 0 or strpos(${sessions.labels}, ${"\\"}) > 0)`;
}

/** The other filters. */
export function isInState(filter: SessionFilter = {}): SQL | undefined {
  const { running = false, waiting = false, query = "", phase = "", state } = filter;
  const part = sql`lower(${query}::text)`;
  return and(
    running ? isNotNull(sessions.openRunId) : undefined,
    waiting ? isNotNull(sessions.waitingSince) : undefined,
    query === ""
      ? undefined
      : sql`(strpos(lower(${sessions.name}), ${part}) > 0 or strpos(lower(${sessions.id}), ${part}) > 0)`,
    phase === "" ? undefined : eq(sessions.phase, phase),
    standsAt(state),
    activeWithin(filter),
  );
}

/** `active_at`, which has indexes, is at most 10 s before the newest row. */
function activeWithin({ activeAfterMicros: after, activeBeforeMicros: before }: SessionFilter) {
  const at = sql`coalesce(${sessions.lastActivityAt}, ${sessions.createdAt})`;
  const from = after === undefined ? undefined : sql`${isoOf(after)}::timestamptz`;
  const to = before === undefined ? undefined : sql`${isoOf(before)}::timestamptz`;
  return and(
    from ? sql`${at} >= ${from} and ${sessions.activeAt} >= ${from} - interval '10 s'` : undefined,
    to ? sql`${at} < ${to} and ${sessions.activeAt} < ${to}` : undefined,
  );
}

/** Undefined when the session does not exist or was deleted. */
export async function updateSession(
  database: Database,
  id: string,
  change: SessionChange,
): Promise<SessionRecord | undefined> {
  const { startTimeMicros: start, completionTimeMicros: completion, ...texts } = change;
  const [record] = await database.query((drizzle) =>
    drizzle
      .update(sessions)
      .set({
        updatedAt: NOW,
        changedAt: NOW,
        ...texts,
        ...(start === undefined ? {} : { startTime: isoOf(start) }),
        ...(completion === undefined ? {} : { completionTime: isoOf(completion) }),
      })
      .where(and(eq(sessions.id, id), isNull(sessions.deletedAt)))
      .returning(RECORD),
  );
  return record;
}

/** Of a session without an outcome and without an open run; others stay as they are. */
export async function setRunOutcome(
  database: Database,
  id: string,
  outcome: string,
  endedAtMicros: bigint,
): Promise<void> {
  await database.run(sql`
    update sessions set run_outcome = ${outcome}, run_ended_at = ${isoOf(endedAtMicros)}::timestamptz
    where id = ${id} and run_outcome is null and open_run_id is null`);
}

/** One statement for all; deleted sessions are in the answer, marked as deleted. */
export async function readHeads(
  database: Database,
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, SessionHead>> {
  if (sessionIds.length === 0) return new Map();
  // A sharded engine finds the node of one session, and asks all nodes for a list.
  const isWanted = sessionIds.length === 1 ? sql`${sessionIds[0]}` : anyOf(sessionIds);
  const rows = await database.run(sql`
    select id, message_seq, event_seq, deleted_at is not null as deleted, ${SERVER} as server
    from sessions where id = ${isWanted}`);
  database.onAnswer(rows[0]?.["server"]);
  return new Map(
    rows.map((row) => [
      String(row["id"]),
      {
        messageSeq: BigInt(String(row["message_seq"])),
        eventSeq: BigInt(String(row["event_seq"])),
        deleted: row["deleted"] === true,
      },
    ]),
  );
}
