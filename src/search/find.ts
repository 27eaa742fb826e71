/**
 * Finds texts by the index of words. A question that matches few texts is answered from all of its
 * matches. A question that matches many would sort them all, so it walks the texts from the newest, a
 * bounded number of texts and matches for a page:
 *
 *   words ──► at most MATCHES_MAX matches ──► all of them, sorted ───────────────────► page
 *                 └─ more ──► the newest texts, WALKED_MAX of them ── those that match ──► page
 *
 * Each found text is joined with its session, which the caller must be allowed to read, and which must not be
 * deleted. The marks of the caller's scope are also words of the question, so that foreign texts take no
 * place among the matches.
 */
import { isoOf, microsColumn, optionalBigintOf } from "../store/columns.ts";
import { type Database, type Fields, type SQL, sql } from "../store/database.ts";
import { sessions, sessionTexts } from "../store/schema.ts";
import { listedIn, type SessionScope } from "../store/sessions.ts";
import { PROGRESS } from "./index-store.ts";
import { allOf, markOf, type SearchWords, questionOf } from "./words.ts";

const MATCHES_MAX = 2_000;
const WALKED_MAX = 10_000;
/** Of the newest matches these are joined with their sessions; a page has fewer texts. */
const JOINED_MAX = 250;

export interface SearchRequest {
  readonly query: string;
  /** A configuration of PostgreSQL's text search. */
  readonly language: string;
  readonly scope: SessionScope;
  /** Empty texts: any. */
  readonly projectId: string;
  readonly agentId: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly sessionId: string;
  readonly role: string;
  readonly eventType: string;
  readonly afterMicros: bigint | undefined;
  readonly beforeMicros: bigint | undefined;
  readonly isBestFirst: boolean;
  readonly textsMax: number;
  readonly cursor: SearchCursor | undefined;
}

/** The last text of a page, or the number of better texts. */
export type SearchCursor = TextKey | { readonly skipped: number };

export interface TextKey {
  readonly micros: bigint;
  readonly sessionId: string;
  readonly digest: string;
  readonly part: number;
}

export interface TextMatch {
  readonly key: TextKey;
  readonly sessionName: string;
  readonly projectId: string;
  readonly runId: string;
  readonly stream: string;
  readonly seq: bigint;
  readonly role: string;
  readonly eventType: string;
  readonly excerpt: readonly Highlight[];
}

export interface Highlight {
  readonly text: string;
  readonly isMatch: boolean;
}

export interface SearchPage {
  readonly found: readonly TextMatch[];
  /** Undefined: no more. */
  readonly next: SearchCursor | undefined;
  /** The texts of all rows that were recorded before it are stored; undefined: not known. */
  readonly indexedUntilMicros: bigint | undefined;
}

/** Undefined: no word to look for is in the question. */
export async function findTexts(
  database: Database,
  request: SearchRequest,
): Promise<SearchPage | undefined> {
  const asked = questionOf(request.query);
  const [fields] = await database.run(
    sql`select querytree(${tsqueryOf(asked, request.language)}) as tree, ${PROGRESS} as until`,
    AD_HOC,
  );
  // T: all texts, for example those without a word.
  if (["", "T"].includes(String(fields?.["tree"]))) return undefined;
  const rare = await database.run(rareStatement(request), AD_HOC);
  const isRare = Number(rare[0]?.["matches"]) <= MATCHES_MAX;
  const rows = isRare ? rare : await database.run(walkStatement(request), AD_HOC);
  const found = rows.filter((row) => typeof row["session_id"] === "string");
  const page = found.slice(0, request.textsMax);
  const hasMore = found.length > page.length;
  const next = nextAfter(request, page, hasMore, isRare ? undefined : rows[0]);
  const indexedUntilMicros = optionalBigintOf(fields?.["until"]);
  const excerpted = await withExcerpts(database, { request, asked, page });
  return { found: excerpted, next, indexedUntilMicros };
}

/** Planned for each call: the best plan depends on the words. */
const AD_HOC = { prepare: false };

function nextAfter(
  { isBestFirst, cursor, textsMax }: SearchRequest,
  page: readonly Fields[],
  hasMore: boolean,
  walked: Fields | undefined,
): SearchCursor | undefined {
  if (isBestFirst) return hasMore ? { skipped: skipped(cursor) + textsMax } : undefined;
  const last = page.at(-1);
  if (hasMore && last !== undefined) return keyOf(last);
  // The page is not full, and texts behind the walk are left.
  if (walked === undefined || typeof walked["end_session"] !== "string") return undefined;
  return {
    micros: BigInt(String(walked["end_micros"])),
    sessionId: walked["end_session"],
    digest: String(walked["end_digest"]),
    part: Number(walked["end_part"]),
  };
}

function tsqueryOf({ plain, joined }: SearchWords, language: string): SQL {
  const words = sql`websearch_to_tsquery(${language}::text::regconfig, ${plain})`;
  return joined === "" ? words : sql`(${words} && ${joined}::text::tsquery)`;
}

/** The question with the filters that are words. */
function whole(request: SearchRequest): SQL {
  const { scope, language } = request;
  const wanted = [
    ["project", request.projectId],
    ["project", scope.projectId ?? ""],
    ["session", request.sessionId],
    ["session", scope.sessionId ?? ""],
    ["role", request.role],
    ["type", request.eventType],
  ] as const;
  const marks = wanted.flatMap(([kind, value]) => (value === "" ? [] : [markOf(kind, value)]));
  const words = tsqueryOf(questionOf(request.query), language);
  return marks.length === 0 ? words : sql`(${words} && ${allOf(marks)}::text::tsquery)`;
}

const ORDER = sql`created_at desc, session_id desc, digest desc, part desc`;

/** All matches, if they are not too many. Exported for the plan test. */
export function rareStatement(request: SearchRequest): SQL {
  const { textsMax, isBestFirst, cursor } = request;
  const rank = isBestFirst ? sql`ts_rank(words, ${whole(request)})` : sql`0`;
  return sql`
    with matched as materialized (
      select session_id, digest, part, created_at, ${rank} as rank from ${sessionTexts}
      where words @@ ${whole(request)}${inTime(request)} limit ${MATCHES_MAX + 1}
    ), counted as (select count(*) as matches from matched)
    select matches, page.* from counted left join (
      select m.*, s.name, s.project_id, ${microsColumn(sql`m.created_at`)} as micros
      from matched m ${sessionOf(request)}
      where (select matches from counted) <= ${MATCHES_MAX}${behind(cursor)}
      order by rank desc, ${ORDER} limit ${textsMax + 1} offset ${skipped(cursor)}
    ) page on true
    order by rank desc, ${ORDER}`;
}

/** The newest matching texts, and the end of a long walk. Exported for the plan test. */
export function walkStatement(request: SearchRequest): SQL {
  const { textsMax, isBestFirst, cursor } = request;
  const from = cursor !== undefined && "micros" in cursor ? cursor : undefined;
  const newest = sql`
    select session_id, digest, part, created_at, words from ${sessionTexts}
    where true${inTime(request)}${from === undefined ? sql`` : sql` and created_at <= ${isoOf(from.micros)}::timestamptz`}${behind(cursor)}
    order by ${ORDER}`;
  const order = isBestFirst ? sql`rank desc, ${ORDER}` : ORDER;
  const rank = isBestFirst ? sql`ts_rank(words, ${whole(request)})` : sql`0`;
  // The best are known at the end of the walk; the newest are known as soon as a page is full.
  const matchesMax = isBestFirst ? WALKED_MAX : JOINED_MAX;
  return sql`
    with matched as materialized (
      select session_id, digest, part, created_at, ${rank} as rank
      from (${newest} limit ${WALKED_MAX}) walked where words @@ ${whole(request)}
      order by ${ORDER} limit ${matchesMax}
    ), page as materialized (
      select m.*, s.name, s.project_id, ${microsColumn(sql`m.created_at`)} as micros
      from matched m ${sessionOf(request)}
      order by ${order} limit ${textsMax + 1} offset ${skipped(cursor)}
    ), walked_to as (
      select session_id as end_session, digest as end_digest, part as end_part,
        ${microsColumn(sql`created_at`)} as end_micros
      from (
        (select session_id, digest, part, created_at from matched order by ${ORDER} limit 1 offset ${matchesMax - 1})
        union all
        (select session_id, digest, part, created_at from (${newest} limit 1 offset ${WALKED_MAX - 1}) last)
        order by ${ORDER} limit 1
      ) ends
      where not ${isBestFirst} and (select count(*) from page) <= ${textsMax}
    )
    select * from (select) one left join walked_to on true left join page on true
    order by ${order}`;
}

function inTime({ afterMicros, beforeMicros }: SearchRequest): SQL {
  const after =
    afterMicros === undefined ? sql`` : sql` and created_at >= ${isoOf(afterMicros)}::timestamptz`;
  return beforeMicros === undefined
    ? after
    : sql`${after} and created_at < ${isoOf(beforeMicros)}::timestamptz`;
}

function behind(cursor: SearchCursor | undefined): SQL {
  if (cursor === undefined || "skipped" in cursor) return sql``;
  const { micros, sessionId, digest, part } = cursor;
  return sql` and (created_at, session_id, digest, part) < (${isoOf(micros)}::timestamptz, ${sessionId}, ${digest}::uuid, ${part}::int)`;
}

function skipped(cursor: SearchCursor | undefined): number {
  return cursor !== undefined && "skipped" in cursor ? cursor.skipped : 0;
}

/**
 * The list of ids makes each look-up a walk down the key, for any statistics. With coalesce the planner has
 * no use for an index of the other conditions.
 */
function sessionOf({ scope, projectId, agentId, labels }: SearchRequest): SQL {
  return sql`join (
    select id, name, project_id from ${sessions}
    where id = any (array(select session_id from matched)) 
      and coalesce(${listedIn({ scope, filter: { projectId, agentId, labels } })}, false)
  ) s on s.id = m.session_id`;
}

function nameOf(row: Fields): string {
  return JSON.stringify([row["session_id"], row["digest"], row["part"]]);
}

function keyOf(row: Fields): TextKey {
  return {
    micros: BigInt(String(row["micros"])),
    sessionId: String(row["session_id"]),
    digest: String(row["digest"]),
    part: Number(row["part"]),
  };
}

/** No stored text has these characters. */
const [BEGIN, END] = ["\u0002", "\u0003"];
const MARKED = `StartSel="${BEGIN}", StopSel="${END}"`;
/** Of a long text; PostgreSQL cuts the fragments at words. */
const FRAGMENTS = `${MARKED}, MaxFragments=2, MaxWords=24, MinWords=8, ShortWord=0, FragmentDelimiter=" … "`;
/** A text of at most this length is its own excerpt. */
const SHORT_CHARS_MAX = 200;

interface Excerpting {
  readonly request: SearchRequest;
  readonly asked: SearchWords;
  readonly page: readonly Fields[];
}

/** A text that was erased meanwhile is left out. */
async function withExcerpts(
  database: Database,
  { request: { language }, asked, page }: Excerpting,
): Promise<readonly TextMatch[]> {
  if (page.length === 0) return [];
  const keys = page
    .map(keyOf)
    .map(({ sessionId, digest, part }) => sql`(${sessionId}, ${digest}::uuid, ${part}::int)`);
  const excerpt =
    asked.runs.length > 0
      ? sql`text`
      : sql`ts_headline(${language}::text::regconfig, text, ${tsqueryOf(asked, language)},
          case when length(text) <= ${SHORT_CHARS_MAX} then ${`${MARKED}, HighlightAll=true`} else ${FRAGMENTS} end)`;
  const rows = await database.run(
    sql`
      select session_id, digest, part, run_id, stream, seq, role, event_type, ${excerpt} as excerpt
      from ${sessionTexts} where (session_id, digest, part) in (${sql.join(keys, sql`, `)})`,
    AD_HOC,
  );
  const byName = new Map(rows.map((row) => [nameOf(row), row]));
  return page.flatMap((of) => {
    const row = byName.get(nameOf(of));
    if (row === undefined) return [];
    const text = String(row["excerpt"]);
    return [
      {
        key: keyOf(of),
        sessionName: String(of["name"]),
        projectId: String(of["project_id"] ?? ""),
        runId: String(row["run_id"] ?? ""),
        stream: String(row["stream"]),
        seq: BigInt(String(row["seq"])),
        role: String(row["role"]),
        eventType: String(row["event_type"]),
        excerpt: asked.runs.length > 0 ? around(text, asked.runs) : piecesOf(text),
      },
    ];
  });
}

function piecesOf(headline: string): readonly Highlight[] {
  return headline
    .split(BEGIN)
    .flatMap((piece, at) => {
      const [match = "", rest = ""] = at === 0 ? ["", piece] : piece.split(END);
      return [
        { text: match, isMatch: true },
        { text: rest, isMatch: false },
      ];
    })
    .filter(({ text }) => text !== "");
}

const AROUND_CHARS = 60;

/** PostgreSQL marks no parts of words, so the texts of scripts without spaces are marked here. */
function around(text: string, runs: readonly string[]): readonly Highlight[] {
  const first = Math.min(...runs.map((run) => text.indexOf(run)).filter((at) => at >= 0));
  const from = Number.isFinite(first) ? Math.max(0, first - AROUND_CHARS) : 0;
  let part = text.slice(from, from + 3 * AROUND_CHARS).toWellFormed();
  for (const run of runs) part = part.replaceAll(run, `${BEGIN}${run}${END}`);
  return piecesOf(part);
}
