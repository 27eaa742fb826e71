/**
 * The promises of a ledger as one question: what is wrong, given the calls and observations of its
 * clients and the final rows of the database? Each answer is a sentence; no answer means that all is well.
 *
 *   every push       acknowledged: stored whole, exactly once, and as every answer said, one of
 *                    which was the first;
 *                    refused: not stored; lost: stored at most once
 *   every stream     numbers contiguous from 1 by event_count, their sum the counter of the session;
 *                    runs as the rows say; no row that was never sent
 *   order            a push acknowledged before another one began has the lower number
 *   fencing          no row after a row of a higher epoch
 *   every reader     each row follows the one before without gap or duplicate, and equals the row of
 *                    the database; a read that found the end had found every row that was
 *                    acknowledged before it began
 */
import type { StreamName } from "../../src/store/rows.ts";
import {
  type Answer,
  type Attempt,
  type History,
  lastSeqOf,
  markOf,
  type PushRecord,
  type Reader,
  type Row,
} from "./history.ts";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pgDataIn, withSql } from "./embedded-fixture.ts";
import type postgres from "postgres";

/** The rows of the database after all clients have ended. */
export interface Witness {
  /** The rows of each stream, in the order of their numbers. */
  readonly rows: readonly Row[];
  /** The highest number used. */
  readonly counters: ReadonlyMap<string, Readonly<Record<StreamName, bigint>>>;
}

/** Further problems of the same kind add nothing. */
const PROBLEMS_MAX = 20;

interface CheckOptions {
  /** Sessions with other writers, whose rows have no mark and are not checked. */
  readonly shared?: ReadonlySet<string>;
  /** Rows that a promoted standby did not have: exactly those may be acknowledged and missing. */
  readonly lost?: readonly Row[];
}

export function problemsOf(
  whole: History,
  witness: Witness,
  { shared = new Set(), lost = [] }: CheckOptions = {},
): readonly string[] {
  const stored = new Set(witness.rows.map(({ id }) => id));
  // A row whose commit had no answer is stored again by the service under the same id.
  const gone = lost.filter(({ id }) => !stored.has(id));
  const history = withoutLost(whole, new Set(gone.map(({ id }) => id)));
  const lostStreams = Map.groupBy(lost, streamKey);
  const streams = Map.groupBy(witness.rows, streamKey);
  const byMark = Map.groupBy(witness.rows, (row) => markOf(row) ?? "");
  const problems = [
    ...history.pushes.flatMap((push) => pushProblems(push, byMark.get(push.sent.mark) ?? [])),
    ...strangers(history, byMark, shared),
    ...[...streams.values()].flatMap(streamProblems),
    ...counterProblems(witness, streams),
    ...[...Map.groupBy(history.pushes, ({ sent }) => streamKey(sent)).values()].flatMap((pushes) =>
      orderProblems(pushes, byMark),
    ),
    ...[...Map.groupBy(history.pushes, ({ sent }) => sent.sessionId).values()].flatMap((pushes) =>
      epochProblems(pushes, byMark),
    ),
    ...history.readers.flatMap((reader) =>
      readerProblems(reader, history, {
        stored: streams.get(streamKey(reader)) ?? [],
        lost: reader.wasToldOfLoss ? (lostStreams.get(streamKey(reader)) ?? []) : [],
      }),
    ),
  ];
  const more = problems.length - PROBLEMS_MAX;
  return more > 0 ? [...problems.slice(0, PROBLEMS_MAX), `and ${more} more`] : problems;
}

type Checked = Pick<History, "pushes" | "readers" | "sessionIds">;

/** A push that was answered with a lost row counts as never sent. */
function withoutLost(history: History, lost: ReadonlySet<string>): Checked {
  if (lost.size === 0) return history;
  const isLost = ({ answer }: Attempt): boolean =>
    answer.kind === "acknowledged" && lost.has(answer.row.id);
  const pushes = history.pushes.map(({ sent, attempts }) => {
    return { sent, attempts: attempts.filter((attempt) => !isLost(attempt)) };
  });
  return { pushes, readers: history.readers, sessionIds: () => history.sessionIds() };
}

type Acknowledged = Extract<Answer, { kind: "acknowledged" }>;

function acknowledged({ attempts }: PushRecord): readonly Acknowledged[] {
  return attempts.flatMap(({ answer }) => (answer.kind === "acknowledged" ? [answer] : []));
}

/** The tick at which it was first known to be stored, or infinity. */
function acknowledgedAt({ attempts }: PushRecord): number {
  const known = attempts.filter(({ answer }) => answer.kind === "acknowledged");
  return Math.min(...known.map(({ ended }) => ended));
}

function beganAt({ attempts }: PushRecord): number {
  return attempts[0]?.began ?? 0;
}

function pushProblems(push: PushRecord, stored: readonly Row[]): readonly string[] {
  const { sent, attempts } = push;
  const problem = (what: string): string => `${sent.mark} (${streamKey(sent)}): ${what}`;
  const answers = acknowledged(push);
  const [first] = stored;
  if (first === undefined) {
    return answers.length > 0 ? [problem("acknowledged, and not there")] : [];
  }
  const problems: string[] = [];
  if (attempts.every(({ answer }) => answer.kind === "refused")) {
    problems.push(problem("refused, and stored"));
  }
  if (stored.length !== sent.rows) {
    problems.push(problem(`${stored.length} rows, and not ${sent.rows}`));
  } else {
    const numbers = stored.reduce((sum, { eventCount }) => sum + eventCount, 0);
    const connected = stored.every((row, at) => at === 0 || connects(stored[at - 1], row));
    if (numbers !== sent.numbers) problems.push(problem(`takes ${numbers} numbers`));
    if (!connected) problems.push(problem("its rows do not follow each other"));
    if (sent.rows === 1 && first.payload !== sent.payload) problems.push(problem("other payload"));
  }
  for (const { row } of answers) {
    const difference = differenceOf(row, first);
    if (difference !== undefined) problems.push(problem(`answered with another ${difference}`));
  }
  const asNew = answers.filter(({ deduplicated }) => !deduplicated).length;
  if (asNew > 1) problems.push(problem("answered as new more than once"));
  if (asNew === 0 && attempts.every(({ answer }) => answer.kind === "acknowledged")) {
    problems.push(problem("never answered as new"));
  }
  return problems;
}

/** Rows of our own sessions that no client of ours sent. */
function strangers(
  history: Checked,
  byMark: ReadonlyMap<string, readonly Row[]>,
  shared: ReadonlySet<string>,
): readonly string[] {
  const sent = new Set(history.pushes.map((push) => push.sent.mark));
  const sessionIds = history.sessionIds();
  return [...byMark]
    .filter(([mark]) => !sent.has(mark))
    .flatMap(([, rows]) => rows.filter((row) => sessionIds.has(row.sessionId)))
    .filter((row) => markOf(row) !== undefined || !shared.has(row.sessionId))
    .map((row) => `${nameOf(row)}: nobody sent it`);
}

/** Rows of one stream, in order: each follows the one before, and is in the open run. */
export function streamProblems(rows: readonly Row[]): readonly string[] {
  const problems: string[] = [];
  for (const [at, row] of rows.entries()) {
    const isNext = at === 0 ? row.seq === 1n : connects(rows[at - 1], row);
    if (!isNext) problems.push(`${nameOf(row)}: does not connect to the row before it`);
  }
  return [...problems, ...runProblems(rows)];
}

function counterProblems(
  { counters }: Witness,
  streams: ReadonlyMap<string, readonly Row[]>,
): readonly string[] {
  return [...counters].flatMap(([sessionId, used]) =>
    (["messages", "events"] as const).flatMap((stream) => {
      const rows = streams.get(streamKey({ stream, sessionId })) ?? [];
      const sum = rows.reduce((total, { eventCount }) => total + BigInt(eventCount), 0n);
      const counter = used[stream];
      const name = streamKey({ stream, sessionId });
      return sum === counter ? [] : [`${name}: ${sum} numbers in rows, counter at ${counter}`];
    }),
  );
}

/** RUN_STARTED opens a run, or replaces the open one; the two ends belong to it and close it. */
function runProblems(rows: readonly Row[]): readonly string[] {
  const problems: string[] = [];
  let open = "";
  for (const row of rows) {
    if (row.eventType === "RUN_STARTED") open = runIdIn(row.payload);
    if (row.runId !== open) problems.push(`${nameOf(row)}: in run "${row.runId}", not "${open}"`);
    if (row.eventType === "RUN_FINISHED" || row.eventType === "RUN_ERROR") open = "";
  }
  return problems;
}

function runIdIn(payload: string): string {
  const event: unknown = JSON.parse(payload);
  const holdsRun = typeof event === "object" && event !== null && "runId" in event;
  return holdsRun ? String(event.runId) : "";
}

/** One stream of a session, walked from its end with the earliest acknowledgement so far. */
function orderProblems(
  pushes: readonly PushRecord[],
  byMark: ReadonlyMap<string, readonly Row[]>,
): readonly string[] {
  const inOrder = storedOf(pushes, byMark).toSorted((left, right) =>
    left.row.seq < right.row.seq ? -1 : 1,
  );
  const problems: string[] = [];
  let earliest = Number.POSITIVE_INFINITY;
  for (const { push, row } of inOrder.toReversed()) {
    if (earliest < beganAt(push)) {
      problems.push(`${nameOf(row)}: began after a push with a higher number was acknowledged`);
    }
    earliest = Math.min(earliest, acknowledgedAt(push));
  }
  return problems;
}

/** One session, over both of its streams. */
function epochProblems(
  pushes: readonly PushRecord[],
  byMark: ReadonlyMap<string, readonly Row[]>,
): readonly string[] {
  const fenced = storedOf(pushes, byMark).flatMap(({ push, row }) => {
    const { epoch } = push.sent;
    return epoch === undefined ? [] : [{ push, row, epoch }];
  });
  const overtook = (one: (typeof fenced)[number], other: (typeof fenced)[number]): boolean =>
    other.epoch > one.epoch &&
    (other.row.stream === one.row.stream
      ? other.row.seq < one.row.seq
      : acknowledgedAt(other.push) < beganAt(one.push));
  return fenced
    .filter((one) => fenced.some((other) => overtook(one, other)))
    .map(({ row, epoch }) => `${nameOf(row)}: of epoch ${epoch}, behind a higher one`);
}

function readerProblems(
  reader: Reader,
  { pushes }: Checked,
  { stored, lost }: { readonly stored: readonly Row[]; readonly lost: readonly Row[] },
): readonly string[] {
  const problem = (what: string): string => `${reader.name} of ${streamKey(reader)}: ${what}`;
  const problems = reader.failure === undefined ? [] : [problem(`failed with ${reader.failure}`)];
  const bySeq = new Map(stored.map((row) => [row.seq, row]));
  const lostById = Map.groupBy(lost, ({ id }) => id);
  for (const [at, row] of reader.rows.entries()) {
    const before = reader.rows[at - 1];
    const isNext = before === undefined ? row.seq === 1n : connects(before, row);
    if (!isNext) {
      problems.push(problem(`row ${row.seq} after ${before ? lastSeqOf(before) : "nothing"}`));
    }
    const wasThere = (lostById.get(row.id) ?? []).find((one) => !differenceOf(row, one));
    const expected = wasThere ?? bySeq.get(row.seq);
    const difference =
      expected === undefined ? "row, which is not there" : differenceOf(row, expected);
    if (difference !== undefined) problems.push(problem(`row ${row.seq}: another ${difference}`));
  }
  // Each acknowledgement of the stream by its tick, with the highest number known by then.
  const heads: { at: number; seq: bigint }[] = [];
  const own = pushes.filter(({ sent }) => streamKey(sent) === streamKey(reader));
  const known = own.flatMap((push) =>
    acknowledged(push).map(({ row }) => ({ at: acknowledgedAt(push), seq: row.seq })),
  );
  for (const { at, seq } of known.toSorted((left, right) => left.at - right.at)) {
    const highest = heads.at(-1)?.seq ?? 0n;
    heads.push({ at, seq: seq > highest ? seq : highest });
  }
  for (const { began, upTo } of reader.ends) {
    const head = heads.findLast(({ at }) => at < began)?.seq ?? 0n;
    if (upTo < head) problems.push(problem(`found its end at ${upTo}, when ${head} was there`));
  }
  return problems;
}

function storedOf(
  pushes: readonly PushRecord[],
  byMark: ReadonlyMap<string, readonly Row[]>,
): readonly { readonly push: PushRecord; readonly row: Row }[] {
  return pushes.flatMap((push) => {
    const [row] = byMark.get(push.sent.mark) ?? [];
    return row === undefined ? [] : [{ push, row }];
  });
}

/** The name of the first field in which two rows differ. */
function differenceOf(one: Row, other: Row): string | undefined {
  const fields = [
    "id",
    "seq",
    "eventCount",
    "eventType",
    "payload",
    "createdAtMicros",
    "runId",
  ] as const;
  return fields.find((field) => one[field] !== other[field]);
}

function connects(before: Row | undefined, row: Row): boolean {
  return before !== undefined && row.seq === lastSeqOf(before) + 1n;
}

function streamKey(of: { readonly stream: StreamName; readonly sessionId: string }): string {
  return `${of.sessionId} ${of.stream}`;
}

function nameOf(row: Row): string {
  return `${streamKey(row)} ${row.seq}`;
}

// The rows of some sessions in the database, read without any code of the service.

interface Fields {
  readonly session_id: string;
  readonly seq: string;
  readonly event_count: number;
  readonly id: string;
  readonly event_type: string;
  readonly payload: string;
  readonly created_at: string;
  readonly run_id: string | null;
}

/** The rows of the embedded server of a DATA_DIR. */
export async function witnessIn(dataDir: string, sessionIds: Iterable<string>): Promise<Witness> {
  return withSql(await embeddedUrl(dataDir), (sql) => readWitness(sql, sessionIds));
}

export async function embeddedUrl(dataDir: string): Promise<string> {
  const password = await readFile(join(dataDir, "postgres", "password"), "utf8");
  const [, , , port] = (await readFile(join(pgDataIn(dataDir), "postmaster.pid"), "utf8")).split(
    "\n",
  );
  return `postgres://postgres:${password.trim()}@127.0.0.1:${port}/postgres`;
}

export async function readWitness(
  sql: postgres.Sql,
  sessionIds: Iterable<string>,
): Promise<Witness> {
  const ids = [...sessionIds];
  const micros = sql`(extract(epoch from created_at) * 1000000)::bigint::text as created_at`;
  // One transaction: rows and counters of the same moment.
  return sql.begin("isolation level repeatable read", async (now) => {
    const messages = await now<Fields[]>`
      select session_id, seq::text, 1 as event_count, id, event_type, payload, ${micros}, null as run_id
      from session_messages where session_id in ${now(ids)} order by session_id, session_messages.seq`;
    const events = await now<Fields[]>`
      select session_id, seq::text, event_count, id, event_type, payload, ${micros}, run_id
      from session_events where session_id in ${now(ids)} order by session_id, session_events.seq`;
    const counters = await now<{ id: string; messages: string; events: string }[]>`
      select id, message_seq::text as messages, event_seq::text as events
      from sessions where id in ${now(ids)}`;
    return {
      rows: [
        ...messages.map((fields) => rowOf("messages", fields)),
        ...events.map((fields) => rowOf("events", fields)),
      ],
      counters: new Map(
        counters.map((used) => [
          used.id,
          { messages: BigInt(used.messages), events: BigInt(used.events) },
        ]),
      ),
    };
  });
}

function rowOf(stream: StreamName, fields: Fields): Row {
  return {
    stream,
    sessionId: fields.session_id,
    seq: BigInt(fields.seq),
    eventCount: fields.event_count,
    id: fields.id,
    eventType: fields.event_type,
    payload: fields.payload,
    createdAtMicros: BigInt(fields.created_at),
    runId: fields.run_id ?? "",
  };
}
