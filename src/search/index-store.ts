/** The statements of the instance that stores texts and runs (index-unit.ts). */
import { createHash } from "node:crypto";
import { ServiceError } from "@session-ledger/base/errors";
import { isoOf, microsColumn, TABLE } from "../store/columns.ts";
import { bigintOf, type Database, type Fields, type SQL, sql } from "../store/database.ts";
import {
  indexedSessions,
  leases,
  sessionRuns,
  sessionTexts,
  sessionToolCalls,
} from "../store/schema.ts";
import type { ListCursor } from "../store/session-list.ts";
import { callRow, runRow } from "../analytics/stored.ts";
import type { FoundText, FoundTexts } from "./text-fold.ts";
import { comparable, joinedWordsOf, markOf, partsOf, withoutControls } from "./words.ts";

const LEASE = "search";
/** Another instance takes over after this time without a sign of the holder. */
const LEASE_S = 30;

/** How often all work was asked for again; undefined: another instance has the lease. */
export async function holdLease(database: Database, holder: string): Promise<number | undefined> {
  const [lease] = await database.run(sql`
    insert into ${leases} as current (name, holder, held_until)
    values (${LEASE}, ${holder}, clock_timestamp() + interval '1 second' * ${LEASE_S}::int)
    on conflict (name) do update set holder = excluded.holder, held_until = excluded.held_until
    where current.holder = excluded.holder or current.held_until < clock_timestamp() returning asked_again`);
  return lease === undefined ? undefined : Number(lease["asked_again"]);
}

export async function endLease(database: Database, holder: string): Promise<void> {
  await database.run(sql`
    update ${leases} set holder = '', held_until = clock_timestamp()
    where name = ${LEASE} and holder = ${holder}`);
}

/** Everything that was recorded before this time is stored; only the holder sets it. */
export async function storeProgress(
  database: Database,
  { holder, micros }: { readonly holder: string; readonly micros: bigint },
): Promise<void> {
  await database.run(sql`
    update ${leases} set done_until = ${isoOf(micros)}::timestamptz
    where name = ${LEASE} and holder = ${holder}`);
}

/** The time that `storeProgress` stored last; null: not known. */
export const PROGRESS = sql`(
  select ${microsColumn(leases.doneUntil)} from ${leases} where name = ${LEASE})`;

/** The instance that stores texts looks at all sessions again: rows with older times were stored. */
export async function askAgain(database: Pick<Database, "run">): Promise<void> {
  await database.run(sql`
    insert into ${leases} as current (name, holder, held_until, asked_again)
    values (${LEASE}, '', clock_timestamp(), 1)
    on conflict (name) do update set asked_again = current.asked_again + 1, done_until = null`);
}

export async function checkLanguage(database: Database, language: string): Promise<void> {
  const [found] = await database.run(
    sql`select exists (select from pg_ts_config where cfgname = ${language}) as exists`,
  );
  if (found?.["exists"] === true) return;
  const message = `SEARCH_LANGUAGE: expected a text search configuration of the database, like simple; got ${JSON.stringify(language)}`;
  throw new ServiceError("invalid_argument", "INVALID_REQUEST", message);
}

/** How far the texts of a session are stored. */
export interface Stored {
  readonly messages: bigint;
  readonly events: bigint;
  readonly hasSpeech: boolean;
  /** Something was stored of the session, be it only texts before an open message. */
  readonly isKnown: boolean;
}

/** A session with rows behind that. */
export interface StaleSession {
  readonly sessionId: string;
  readonly head: { readonly messages: bigint; readonly events: bigint };
  readonly stored: Stored;
}

/** Sessions that one statement reads, and that it returns. */
const LOOKED_AT_MAX = 20_000;
const STALE_MAX = 500;
/** Rows that one statement reads to find their sessions. */
const RECENT_ROWS_MAX = 5_000;

export interface StalePage<Cursor> {
  readonly stale: readonly StaleSession[];
  /** Undefined: no others. */
  readonly next: Cursor | undefined;
}

/** The sessions after an id whose rows are not all stored as texts, in the order of ids. */
export async function staleAfter(database: Database, after: string): Promise<StalePage<string>> {
  const rows = await database.run(staleStatement(after));
  const stale = staleIn(rows);
  const isCut = stale.length === STALE_MAX;
  const last = isCut ? stale.at(-1)?.sessionId : rows[0]?.["last"];
  const hasMore = isCut || Number(rows[0]?.["looked_at"]) === LOOKED_AT_MAX;
  return { stale, next: hasMore && typeof last === "string" ? last : undefined };
}

/** The same of sessions with rows since a time, in the order of their activity. */
export async function staleActive(
  database: Database,
  after: ListCursor,
): Promise<StalePage<ListCursor>> {
  const rows = await database.run(activeStatement(after), { prepare: false });
  const [first] = rows;
  const isFull = Number(first?.["looked_at"]) === LOOKED_AT_MAX;
  const next = { micros: BigInt(String(first?.["last_micros"] ?? 0)), id: String(first?.["last"]) };
  return { stale: staleIn(rows), next: isFull ? next : undefined };
}

/** Of these sessions, those whose rows are not all stored as texts. */
export async function staleAmong(
  database: Database,
  sessionIds: readonly string[],
): Promise<readonly StaleSession[]> {
  if (sessionIds.length === 0) return [];
  const ids = sql`select json_array_elements_text(${JSON.stringify(sessionIds)}::text::json)`;
  return staleIn(await database.run(sql`${staleOf(ids)} order by looked.id`, { prepare: false }));
}

/** New rows, and forks, whose rows have the times of their parents. */
export const NEW = ["messages", "events", "forks"] as const;
type New = (typeof NEW)[number];

/** Sessions with something that is new since a time, whose rows are not all stored as texts. */
export async function staleSince(
  database: Database,
  { of, micros }: { readonly of: New; readonly micros: bigint },
): Promise<StalePage<bigint>> {
  const rows = await database.run(sinceStatement(of, micros), { prepare: false });
  const isFull = Number(rows[0]?.["looked_at"]) === RECENT_ROWS_MAX;
  return { stale: staleIn(rows), next: isFull ? bigintOf(rows[0]?.["last"]) : undefined };
}

function staleIn(rows: readonly Fields[]): readonly StaleSession[] {
  return rows
    .filter((row) => typeof row["id"] === "string")
    .map((row) => ({
      sessionId: String(row["id"]),
      head: { messages: bigintOf(row["message_seq"]), events: bigintOf(row["event_seq"]) },
      stored: {
        messages: bigintOf(row["messages"]),
        events: bigintOf(row["events"]),
        hasSpeech: row["has_speech"] === true,
        isKnown: row["is_known"] === true,
      },
    }));
}

const STALE_COLUMNS = sql`
  select looked.*, coalesce(i.message_seq, 0) as messages, coalesce(i.event_seq, 0) as events,
    coalesce(i.has_speech, false) as has_speech, i.session_id is not null as is_known`;
const IS_STALE = sql`looked.message_seq > coalesce(i.message_seq, 0)
  or looked.event_seq > coalesce(i.event_seq, 0)`;

/** Exported for the plan test. */
export function staleStatement(after: string): SQL {
  return sql`
    with looked as materialized (
      select id, message_seq, event_seq from sessions
      where id > ${after} and deleted_at is null order by id limit ${LOOKED_AT_MAX}
    )
    select (select max(id) from looked) as last, (select count(*) from looked) as looked_at, behind.*
    from (select) one left join (
      ${STALE_COLUMNS} from looked left join ${indexedSessions} i on i.session_id = looked.id
      where ${IS_STALE} order by looked.id limit ${STALE_MAX}
    ) behind on true`;
}

/** It reads the sessions that were active since, however many. Exported for the plan test. */
export function activeStatement({ micros, id }: ListCursor): SQL {
  return sql`
    with looked as materialized (
      select id, message_seq, event_seq, active_at from sessions
      where (active_at, id) > (${isoOf(micros)}::timestamptz, ${id}) and deleted_at is null
      order by active_at, id limit ${LOOKED_AT_MAX}
    ), last as (
      select id as last, ${microsColumn(sql`active_at`)} as last_micros
      from looked order by active_at desc, id desc limit 1
    )
    select (select count(*) from looked) as looked_at, last.*, behind.*
    from (select) one left join last on true left join (
      ${STALE_COLUMNS} from looked left join ${indexedSessions} i on i.session_id = looked.id
      where ${IS_STALE} order by looked.id
    ) behind on true`;
}

/** The lists of ids, and coalesce, make each look-up a walk down the key, for any statistics. */
function staleOf(ids: SQL): SQL {
  return sql`
    ${STALE_COLUMNS} from (
      select id, message_seq, event_seq from sessions
      where id = any (array(${ids})) and coalesce(deleted_at is null, false)
    ) looked
    left join (
      select * from ${indexedSessions} where session_id = any (array(${ids}))
    ) i on i.session_id = looked.id
    where ${IS_STALE}`;
}

const RECORDED: Readonly<Record<New, SQL>> = {
  messages: sql`${TABLE.messages}`,
  events: sql`${TABLE.events}`,
  forks: sql`(select id as session_id, changed_at as recorded_at from sessions
    where forked_at_seq is not null or forked_at_message_seq is not null)`,
};

/** It reads the new rows of any number of sessions. Exported for the plan test. */
export function sinceStatement(of: New, micros: bigint): SQL {
  return sql`
    with recent as materialized (
      select session_id, recorded_at from ${RECORDED[of]} rows
      where recorded_at >= ${isoOf(micros)}::timestamptz
      order by recorded_at limit ${RECENT_ROWS_MAX}
    )
    select ${microsColumn(sql`(select max(recorded_at) from recent)`)} as last,
      (select count(*) from recent) as looked_at, behind.*
    from (select) one
    left join (${staleOf(sql`select distinct session_id from recent`)}) behind on true`;
}

interface Storing extends FoundTexts {
  readonly sessionId: string;
  /** How far the session was stored when the fold began. */
  readonly from: Stored;
  readonly upTo: Stored;
  /** Undefined: texts are left out. */
  readonly language: string | undefined;
}

/** Rows and characters of one statement. */
const STORED_ROWS_MAX = 200;
const STORED_CHARS_MAX = 400_000;

/** The number of new texts; undefined: the session must be folded again from its stored position. */
export async function storeFound(
  database: Database,
  { sessionId, from, upTo, language, texts, runs, calls }: Storing,
): Promise<number | undefined> {
  const runRows = JSON.stringify(runs.map(runRow));
  const callRows = JSON.stringify(calls.map(callRow));
  const batches = batchesOf(texts.flatMap((text) => rowsOf(sessionId, text)));
  let count = 0;
  for (const [at, rows] of batches.entries()) {
    const isLast = at === batches.length - 1;
    const end = JSON.stringify({
      ...cursorOf(isLast ? upTo : from),
      tx: language !== undefined,
    });
    const start = JSON.stringify({ ...cursorOf(from), known: from.isKnown || at > 0 });
    const [fields] = await database.run(sql`
      select ledger_store_session_texts(${sessionId}, ${start}::text::json,
        ${end}::text::json, ${language ?? "simple"}::text::regconfig,
        ${JSON.stringify(rows)}::text::json, ${isLast ? runRows : "[]"}::text::json,
        ${isLast ? callRows : "[]"}::text::json) as stored`);
    const stored = fields?.["stored"];
    if (typeof stored !== "string") return undefined;
    count += Number(stored);
  }
  return count;
}

function cursorOf({ messages, events, hasSpeech }: Stored) {
  return { m: String(messages), e: String(events), sp: hasSpeech };
}

/** A row as ledger_store_session_texts reads it. */
interface TextRow {
  readonly tx: string;
}

function rowsOf(sessionId: string, found: FoundText): readonly TextRow[] {
  const { stream, seq, eventType, createdMicros, runId, role, text } = found;
  const hash = createHash("sha256").update(`${role}\n${text}`).digest("hex").slice(0, 32);
  const marks = [markOf("session", sessionId), markOf("role", role), markOf("type", eventType)];
  return partsOf(text).map((part, at) => ({
    lo: comparable(part),
    d: hash,
    p: at,
    t: stream,
    n: String(seq),
    ty: eventType,
    ca: isoOf(BigInt(createdMicros)),
    ...(runId !== "" && { run: withoutControls(runId) }),
    ro: role,
    tx: part,
    ma: [...marks, ...joinedWordsOf(comparable(part) ?? "")],
  }));
}

/** At least one batch, which may be empty. */
function batchesOf(rows: readonly TextRow[]): readonly (readonly TextRow[])[] {
  const batches: TextRow[][] = [[]];
  let chars = 0;
  for (const row of rows) {
    const last = batches.at(-1) ?? [];
    if (last.length >= STORED_ROWS_MAX || chars > STORED_CHARS_MAX) {
      batches.push([row]);
      chars = row.tx.length;
    } else {
      last.push(row);
      chars += row.tx.length;
    }
  }
  return batches;
}

/** With SEARCH_LANGUAGE=off sessions were read without their texts; now they are read again. */
export async function forgetTextless(database: Database): Promise<void> {
  await database.run(sql`delete from ${indexedSessions} where not has_texts`);
}

/** Forgets all texts and runs, or those of one session; the instance that stores them begins again. */
export async function forgetTexts(
  database: Database,
  sessionId: string | undefined,
): Promise<void> {
  await (sessionId === undefined
    ? database.run(sql`
        truncate ${sessionTexts}, ${sessionRuns}, ${sessionToolCalls}, ${indexedSessions}`)
    : database.run(sql`
        with deleted as (delete from ${indexedSessions} where session_id = ${sessionId}),
          runs as (delete from ${sessionRuns} where session_id = ${sessionId}),
          calls as (delete from ${sessionToolCalls} where session_id = ${sessionId})
        delete from ${sessionTexts} where session_id = ${sessionId}`));
  await askAgain(database);
}
