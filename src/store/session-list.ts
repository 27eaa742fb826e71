/**
 * Lists of sessions, a page at a time. No statement reads more than a bounded number of sessions, with
 * any filter and any number of sessions:
 *
 *   a filter with an index leaves few ──► all of them, the other filters, sorted ─────────► page
 *     └─ no ──► the next WALKED_MAX sessions of the order ──► the other filters ──► full? ──► page
 *                 labels leave few ──► all of them, sorted ──► page ◄──────────────── no
 *                   └─ no ──► the page ends early, and its token is the end of the walk
 *
 * A page first reads keys and sizes, then the records by their ids. The size of a page is bounded: a page
 * that would be too large leaves out the prompts, then labels, annotations and capabilities, and at last
 * has only ids, phases, times and the beginning of names.
 */
import { and, isNull, type SQL, sql } from "drizzle-orm";
import { anyOf, isoOf, microsColumn } from "./columns.ts";
import { type Database, type Fields } from "./database.ts";
import { sessions } from "./schema.ts";
import {
  belongsTo,
  isInState,
  RECORD,
  type SessionFilter,
  type SessionRecord,
  type SessionScope,
  type SessionState,
} from "./sessions.ts";

/** Sessions that one page reads, and to which totals are exact. */
export const WALKED_MAX = 10_000;

export type ListOrder = keyof typeof ORDERS;

/** A session as its order sees it; a page begins after one. */
export interface ListCursor {
  readonly micros: bigint;
  readonly id: string;
}

export interface SessionsPage {
  /** Sessions to skip, or the place and the total of the page before. */
  readonly from: number | { readonly place: ListCursor; readonly total: ListTotal };
  readonly size: number;
  readonly scope: SessionScope;
  readonly filter?: SessionFilter;
  readonly order?: ListOrder;
}

export interface ListTotal {
  readonly count: number;
  /** More may exist. */
  readonly isLowerBound: boolean;
}

export interface SessionList {
  readonly items: readonly SessionRecord[];
  readonly total: ListTotal;
  /** Undefined: no more. */
  readonly next: ListCursor | undefined;
}

const ORDERS = {
  newest: { time: sessions.createdAt, isNewestFirst: true },
  activity: { time: sessions.activeAt, isNewestFirst: true },
  waiting: { time: sessions.waitingSince, isNewestFirst: false },
  /** Of sessions that wait for a person. */
  asking: { time: sessions.runEndedAt, isNewestFirst: false },
};

const LIST_BYTES_MAX = 3 * 1024 * 1024;
/** Five times, six numbers, the phase, the kind, the path before the id, and the tags around them. */
const SESSION_OVERHEAD_BYTES = 384;
const left = sql<null>`null`;
/** Characters of a name on a page that would be too large even without all other texts. */
const SHORT_NAME_CHARS = 128;
/** Replacements for columns of RECORD. */
const SHORT = {
  name: sql<string>`left(${sessions.name}, ${SHORT_NAME_CHARS})`,
  projectId: left,
  createdByUserId: left,
  llmModel: left,
  agentId: left,
  parentSessionId: left,
  openRunId: left,
  hold: sql<string | null>`left(${sessions.hold}, ${SHORT_NAME_CHARS})`,
};

/** Planned for each call: the best plan depends on the filters. */
const AD_HOC = { prepare: false };

export async function listSessions(
  database: Database,
  request: SessionsPage,
): Promise<SessionList> {
  const { keys, next, total } = await keysOf(database, request);
  const records = await readRecords(database, keys);
  const items = request.order === "activity" ? records.toSorted(byActivity) : records;
  return { items, next, total };
}

async function keysOf(database: Database, request: SessionsPage) {
  const { from, size } = request;
  const read: RunStatement = (statement) => database.run(statement, AD_HOC);
  const conditions = conditionsOf(request);
  const inOrder = walkOf(request, conditions);
  let walk =
    inOrder.rest.length === 0 ? inOrder : ((await wholeOf(conditions, "quick", read)) ?? inOrder);
  let found = await read(pageStatement(request, walk));
  let end: ListCursor | undefined;
  if (found.length <= size && walk === inOrder && walk.rest.length > 0) {
    const whole = await wholeOf(conditions, "slow", read);
    if (whole === undefined) {
      const [last, another] = await read(endStatement(request, walk));
      end = another && placeOf(last); // Else the walk ends with the list.
    } else found = await read(pageStatement(request, (walk = whole)));
  }
  const keys = found.slice(0, size);
  const next = found.length > size ? placeOf(keys.at(-1)) : end;
  if (typeof from !== "number") return { keys, next, total: from.total };
  // The page has everything that was found, in the list or in its first part.
  if (found.length <= size && (keys.length > 0 || from === 0))
    return { keys, next, total: { count: from + keys.length, isLowerBound: end !== undefined } };
  const [counted] = await read(countStatement(request, walk));
  const count = Math.min(Number(counted?.["matching"]), WALKED_MAX);
  return { keys, next, total: { count, isLowerBound: Number(counted?.["walked"]) > WALKED_MAX } };
}

type RunStatement = (statement: SQL) => Promise<readonly Fields[]>;

interface Condition {
  readonly sql: SQL;
  /** Orders with an index that begins with this. */
  readonly leads: readonly ListOrder[];
  /** An index finds its sessions. A slow one finds all of them, or none. */
  readonly index: "quick" | "slow" | "none";
}

const ANY: SessionScope = { projectId: undefined, sessionId: undefined };

/** The states that an index finds. */
const STATE_INDEXES = new Map<SessionState | undefined, Omit<Condition, "sql">>([
  ["running", { leads: ["newest"], index: "quick" }],
  ["waiting_for_runner", { leads: ["waiting"], index: "quick" }],
  ["waiting_for_person", { leads: ["asking"], index: "quick" }],
]);

/** The conditions of a list, those that usually leave the fewest sessions first. */
function conditionsOf({ scope, filter = {} }: SessionsPage): readonly Condition[] {
  const { parentSessionId = "", labels = {}, projectId = "", query = "", phase = "" } = filter;
  const { waiting = false, running = false, state, agentId = "" } = filter;
  const { activeAfterMicros, activeBeforeMicros } = filter;
  const conditions: readonly (Omit<Condition, "sql"> & { readonly sql: SQL | undefined })[] = [
    {
      sql: belongsTo({ ...ANY, sessionId: scope.sessionId }),
      leads: ["newest", "activity", "waiting"],
      index: "quick",
    },
    { sql: belongsTo(ANY, { parentSessionId }), leads: ["newest"], index: "quick" },
    { sql: belongsTo(ANY, { labels }), leads: [], index: "slow" },
    { sql: isInState({ waiting }), leads: ["waiting"], index: "quick" },
    { sql: isInState({ state }), ...(STATE_INDEXES.get(state) ?? { leads: [], index: "none" }) },
    {
      sql: belongsTo({ ...ANY, projectId: scope.projectId }, { projectId }),
      leads: ["newest", "activity"],
      index: "quick",
    },
    { sql: isInState({ running }), leads: ["newest"], index: "quick" },
    { sql: isInState({ phase }), leads: [], index: "quick" },
    {
      sql: isInState({ activeAfterMicros, activeBeforeMicros }),
      leads: ["activity"],
      index: "none",
    },
    { sql: belongsTo(ANY, { agentId }), leads: [], index: "none" },
    { sql: isInState({ query }), leads: [], index: "none" },
  ];
  return conditions.flatMap(({ sql: one, ...rest }) =>
    one === undefined ? [] : [{ sql: one, ...rest }],
  );
}

/** The sessions that a statement reads, and the conditions that it then applies to them. */
interface Walk {
  readonly read: SQL | undefined;
  /** All that are read, instead of a number of them in order. */
  readonly isWhole: boolean;
  readonly rest: readonly SQL[];
}

function walkOf(request: SessionsPage, conditions = conditionsOf(request)): Walk {
  const leading = conditions.find(({ leads }) => leads.includes(request.order ?? "newest"));
  const rest = conditions.flatMap((one) => (one === leading ? [] : [one.sql]));
  return { read: leading?.sql, isWhole: false, rest };
}

/** All sessions of a condition that leaves few of them; undefined: no such condition. */
async function wholeOf(
  conditions: readonly Condition[],
  index: "quick" | "slow",
  read: RunStatement,
): Promise<Walk | undefined> {
  for (const one of conditions.filter((each) => each.index === index)) {
    const [counted] = await read(sizeStatement(one.sql));
    const rest = conditions.flatMap((other) => (other === one ? [] : [other.sql]));
    if (Number(counted?.["sessions"]) <= WALKED_MAX) return { read: one.sql, isWhole: true, rest };
  }
  return undefined;
}

/** As the table `sessions`. LIMIT and OFFSET keep the planner from another way to the sessions. */
function sourceOf(
  request: SessionsPage,
  { read, isWhole }: Walk,
  { after, sessionsMax }: { readonly after: SQL | undefined; readonly sessionsMax: number },
): SQL {
  const order = orderOf(request, read === undefined);
  const bound = isWhole ? sql`offset 0` : sql`order by ${order} limit ${sessionsMax}`;
  return sql`(select * from ${sessions}
    where ${and(isNull(sessions.deletedAt), read, after)} ${bound}) sessions`;
}

/** Exported for the plan test, as the other statements. */
export function pageStatement(request: SessionsPage, walk: Walk = walkOf(request)): SQL {
  const { from, size } = request;
  const skipped = typeof from === "number" ? from : 0;
  const sessionsMax = walk.rest.length > 0 ? WALKED_MAX : skipped + size + 1;
  const source = sourceOf(request, walk, { after: behind(request), sessionsMax });
  return sql`
    select ${placeColumns(request)}, coalesce(octet_length(prompt), 0) as prompt,
      coalesce(octet_length(labels), 0) + coalesce(octet_length(annotations), 0)
        + coalesce(octet_length(capabilities), 0) as labels,
      octet_length(concat(id, id, name, project_id, created_by_user_id, llm_model, agent_id,
        parent_session_id, open_run_id, hold)) + ${SESSION_OVERHEAD_BYTES}::int as others
    from ${source} where ${restOf(walk)}
    order by ${orderOf(request, walk.read === undefined)} limit ${size + 1} offset ${skipped}`;
}

/** The last session of a walk, and the one behind it. */
function endStatement(request: SessionsPage, walk: Walk): SQL {
  const source = sourceOf(request, walk, { after: behind(request), sessionsMax: WALKED_MAX + 1 });
  return sql`
    select ${placeColumns(request)} from ${source}
    order by ${orderOf(request, walk.read === undefined)} limit 2 offset ${WALKED_MAX - 1}`;
}

export function countStatement(request: SessionsPage, walk: Walk = walkOf(request)): SQL {
  const source = sourceOf(request, walk, { after: undefined, sessionsMax: WALKED_MAX + 1 });
  return sql`
    select count(*) as walked, count(*) filter (where ${restOf(walk)}) as matching from ${source}`;
}

function sizeStatement(condition: SQL): SQL {
  return sql`
    select count(*) as sessions from (
      select id from ${sessions} where ${and(isNull(sessions.deletedAt), condition)}
      limit ${WALKED_MAX + 1}) few`;
}

function restOf({ rest }: Walk): SQL {
  return and(...rest) ?? sql`true`;
}

/** The place of nulls, of which none exist, chooses the index (store/schema.ts). */
function orderOf({ order = "newest" }: SessionsPage, isOfAll: boolean): SQL {
  const { time, isNewestFirst } = ORDERS[order];
  if (!isNewestFirst) return sql`${time}, ${sessions.id}`;
  const nulls = isOfAll ? sql`nulls first` : sql`nulls last`;
  return sql`${time} desc ${nulls}, ${sessions.id} desc ${nulls}`;
}

function behind({ from, order = "newest" }: SessionsPage): SQL | undefined {
  if (typeof from === "number") return undefined;
  const { time, isNewestFirst } = ORDERS[order];
  const { micros, id } = from.place;
  const than = isNewestFirst ? sql`<` : sql`>`;
  return sql`(${time}, ${sessions.id}) ${than} (${isoOf(micros)}::timestamptz, ${id})`;
}

function placeColumns({ order = "newest" }: SessionsPage): SQL {
  return sql`${sessions.id}, ${microsColumn(ORDERS[order].time)} as micros`;
}

function placeOf(row: Fields | undefined): ListCursor | undefined {
  return row && { micros: BigInt(String(row["micros"])), id: String(row["id"]) };
}

/** In the order of their keys. A session that was deleted meanwhile is left out. */
async function readRecords(database: Database, keys: readonly Fields[]): Promise<SessionRecord[]> {
  const bytesOf = (name: string): number => keys.reduce((sum, key) => sum + Number(key[name]), 0);
  const others = bytesOf("others");
  const withLabels = others + bytesOf("labels");
  const withPrompts = withLabels + bytesOf("prompt");
  const columns = {
    ...RECORD,
    ...(withPrompts <= LIST_BYTES_MAX ? {} : { prompt: left }),
    ...(withLabels <= LIST_BYTES_MAX
      ? {}
      : { labels: left, annotations: left, capabilities: left }),
    ...(others <= LIST_BYTES_MAX ? {} : SHORT),
  };
  const ids = keys.map((key) => String(key["id"]));
  const records = await database.query((drizzle) =>
    drizzle
      .select(columns)
      .from(sessions)
      .where(and(sql`${sessions.id} = ${anyOf(ids)}`, isNull(sessions.deletedAt))),
  );
  const byId = new Map(records.map((record) => [record.id, record]));
  return ids.flatMap((id) => byId.get(id) ?? []);
}

/** Pages are cut by a coarser time than the one by which a page is ordered. */
function byActivity(one: SessionRecord, other: SessionRecord): number {
  const [a, b] = [activeMicros(one), activeMicros(other)];
  if (a !== b) return a > b ? -1 : 1;
  return one.id > other.id ? -1 : 1;
}

function activeMicros({ createdAtMicros, lastActivityAtMicros }: SessionRecord): bigint {
  return lastActivityAtMicros ?? createdAtMicros;
}
