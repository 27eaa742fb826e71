import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "./grpc-client.ts";
import { readWitness } from "./history-check.ts";
import type postgres from "postgres";
/**
 * The promises of push streams as one question: what is wrong, given the events and answers of the
 * writers of a session and its final rows? No answer means that all is well.
 *
 *   the session   rows connect from 1 by event_count, the counter is their sum, and expanded they are
 *                 as many events
 *   every writer  its events are stored exactly once and in order: all of them when it came to its end,
 *                 else up to its last stored or acknowledged one; events that have to be refused are
 *                 not stored
 *   every answer  an acknowledged number is stored under the acknowledged seq; numbers only grow; only
 *                 events that have to be are refused; an opening counts the refusals before it
 *   its writers   no event of one after the first event of the next; an epoch restarts the numbers
 *   every reader  each raw event, or each row, after its cursor: once, in order, as it is stored
 *
 * Events are told apart by their content. No two writers that follow each other in a session may send
 * the same content.
 */
export interface ExpectedEvent {
  readonly eventType: string;
  readonly value: unknown;
}

export interface Acknowledgement {
  readonly clientSeq: bigint;
  /** Undefined in the answer to an opening; 0 until the stream has stored something. */
  readonly seq: bigint | undefined;
}

export interface Opening {
  readonly lastClientSeq: bigint;
  readonly refused: bigint;
}

/** The events and answers of one writer in one epoch. */
export interface WriterRecord {
  readonly name: string;
  readonly epoch: bigint;
  /** Its first number; above 1 when another writer came before it in the same epoch. */
  readonly firstClientSeq: bigint;
  /** Undefined for an event that has to be refused. */
  readonly sent: readonly (ExpectedEvent | undefined)[];
  readonly openings: readonly Opening[];
  /** In the order they arrived. */
  readonly acknowledged: readonly Acknowledgement[];
  /** The numbers reported as refused; a break may swallow the report. */
  readonly refused: readonly bigint[];
  /** The service said that everything is committed. */
  readonly isWhole: boolean;
}

export interface StoredRow {
  readonly seq: bigint;
  readonly eventCount: number;
  readonly eventType: string;
  readonly payload: string;
}

export interface StoredSession {
  readonly rows: readonly StoredRow[];
  /** The same, expanded. */
  readonly events: readonly StoredRow[];
  readonly counter: bigint;
}

/** One read of a session from a cursor on, over all reconnects. */
export interface Pass {
  readonly name: string;
  readonly expand: boolean;
  readonly after: bigint;
  readonly seen: readonly StoredRow[];
  /** The read had to continue up to this number. */
  readonly upTo: bigint;
}

/** Further problems of the same kind add nothing. */
const PROBLEMS_MAX = 10;

/** Writers in the order in which they opened; `isOthers` recognises events of other clients. */
export function streamProblemsOf(
  writers: readonly WriterRecord[],
  session: StoredSession,
  isOthers: (event: StoredRow) => boolean = () => false,
): readonly string[] {
  const stored = session.events.map(placed);
  const byKey = Map.groupBy(stored, ({ key }) => key);
  const places = writers.map((writer) => placesOf(writer, byKey));
  return shortened([
    ...sessionProblems(session),
    ...strangerProblems(places, session.events.filter((event) => !isOthers(event)).map(placed)),
    ...places.flatMap((place) => [
      ...contentProblems(place, byKey),
      ...answerProblems(place),
      ...openingProblems(place.writer),
    ]),
    ...successionProblems(places),
  ]);
}

export function passProblemsOf(pass: Pass, session: StoredSession): readonly string[] {
  const rows = pass.expand ? session.events : session.rows;
  // A cursor inside a row delivers the row again; on its first event it counts the row as seen.
  const first = rows.findIndex(
    (row) => row.seq > pass.after || (row.seq < pass.after && pass.after < lastSeqOf(row)),
  );
  const due = first === -1 ? [] : rows.slice(first);
  const problems = pass.seen.flatMap((row, at) => {
    const expected = due[at];
    const isSame =
      expected !== undefined &&
      row.seq === expected.seq &&
      row.eventCount === expected.eventCount &&
      row.eventType === expected.eventType &&
      row.payload === expected.payload;
    return isSame ? [] : [`seq ${row.seq}, where ${expected?.seq ?? "nothing"} comes next`];
  });
  const last = pass.seen.at(-1);
  const reached = last === undefined ? pass.after : lastSeqOf(last);
  if (reached < pass.upTo) problems.push(`ended at ${reached}, before ${pass.upTo}`);
  return shortened(problems).map((problem) => `${pass.name} after ${pass.after}: ${problem}`);
}

/** The last number of a row: the cursor behind it. */
export function lastSeqOf({ seq, eventCount }: Pick<StoredRow, "seq" | "eventCount">): bigint {
  return seq + BigInt(eventCount) - 1n;
}

interface Placed {
  readonly seq: bigint;
  readonly key: string;
}

/** The place of each event of a writer in the session. */
interface Places {
  readonly writer: WriterRecord;
  readonly events: readonly {
    readonly clientSeq: bigint;
    /** Undefined for an event that has to be refused. */
    readonly key: string | undefined;
    readonly seq: bigint | undefined;
  }[];
}

function placed({ seq, eventType, payload }: StoredRow): Placed {
  return { seq, key: keyOf({ eventType, value: JSON.parse(payload) }) };
}

function placesOf(writer: WriterRecord, byKey: ReadonlyMap<string, readonly Placed[]>): Places {
  const used = new Map<string, number>();
  const events = writer.sent.map((event, at) => {
    const clientSeq = writer.firstClientSeq + BigInt(at);
    if (event === undefined) return { clientSeq, key: undefined, seq: undefined };
    const key = keyOf(event);
    const before = used.get(key) ?? 0;
    used.set(key, before + 1);
    return { clientSeq, key, seq: byKey.get(key)?.[before]?.seq };
  });
  return { writer, events };
}

function sessionProblems({ rows, events, counter }: StoredSession): readonly string[] {
  const problems: string[] = [];
  let next = 1n;
  for (const row of rows) {
    if (row.seq !== next) problems.push(`row ${row.seq} where ${next} comes next`);
    next = lastSeqOf(row) + 1n;
  }
  if (counter !== next - 1n) problems.push(`counter at ${counter}, rows up to ${next - 1n}`);
  if (BigInt(events.length) !== counter) {
    problems.push(`${events.length} events expanded, counter at ${counter}`);
  }
  const astray = events.find(({ seq }, at) => seq !== BigInt(at) + 1n);
  if (astray !== undefined) problems.push(`expanded event ${astray.seq} does not connect`);
  return problems;
}

function strangerProblems(places: readonly Places[], stored: readonly Placed[]): readonly string[] {
  const sent = new Set(places.flatMap(({ events }) => events.map(({ key }) => key)));
  return stored.flatMap(({ seq, key }) => (sent.has(key) ? [] : [`seq ${seq}: nobody sent it`]));
}

/** Lost, doubled or misplaced events. */
function contentProblems(
  { writer, events }: Places,
  byKey: ReadonlyMap<string, readonly Placed[]>,
): readonly string[] {
  const due = events.slice(0, writer.isWhole ? events.length : dueCount(writer, events));
  const counts = Map.groupBy(
    events.flatMap(({ key }) => key ?? []),
    (key) => key,
  );
  const lost = due.filter(({ key, seq }) => key !== undefined && seq === undefined);
  const doubled = [...counts].flatMap(([key, own]) => (byKey.get(key) ?? []).slice(own.length));
  const there = due.flatMap(({ clientSeq, seq }) =>
    seq === undefined ? [] : [{ clientSeq, seq }],
  );
  const swapped = there.filter(({ seq }, at) => seq < (there[at - 1]?.seq ?? 0n));
  return [
    ...lost.map(({ clientSeq }) => `${clientSeq} is lost`),
    ...doubled.map(({ seq }) => `seq ${seq} is there a second time`),
    ...swapped.map(({ clientSeq }) => `${clientSeq} is before what was sent before it`),
  ].map((problem) => `${writer.name}: ${problem}`);
}

/** For a writer that did not come to its end: the number of events that must be stored. */
function dueCount(writer: WriterRecord, events: Places["events"]): number {
  const stored = events.findLastIndex(({ seq }) => seq !== undefined) + 1;
  const lastAcknowledged = events.findLastIndex(
    ({ clientSeq }) => clientSeq <= (writer.acknowledged.at(-1)?.clientSeq ?? 0n),
  );
  return Math.max(stored, lastAcknowledged + 1);
}

function answerProblems({ writer, events }: Places): readonly string[] {
  const problems: string[] = [];
  const refused = new Set(writer.refused);
  let before = 0n;
  let opened = 0n;
  for (const answer of writer.acknowledged) {
    const { clientSeq, seq } = answer;
    if (clientSeq < before) problems.push(`${clientSeq} acknowledged after ${before}`);
    if (seq === undefined) opened = clientSeq;
    else {
      const since = between(events, writer, { after: before, upTo: clientSeq });
      const unreported = since.filter(
        (event) => event.key === undefined && !refused.has(event.clientSeq),
      );
      problems.push(...unreported.map((event) => `${event.clientSeq} refused without a word`));
    }
    problems.push(...placeProblems({ writer, events }, { answer, opened }));
    before = clientSeq;
  }
  for (const clientSeq of writer.refused) {
    const isDue = events[indexOf(writer, clientSeq)]?.key === undefined;
    if (!isDue) problems.push(`${clientSeq} refused, and has to be accepted`);
  }
  return problems.map((problem) => `${writer.name}: ${problem}`);
}

/** For one answer: its last covered event is at the place that the answer says. */
function placeProblems(
  { writer, events }: Places,
  { answer, opened }: { readonly answer: Acknowledgement; readonly opened: bigint },
): readonly string[] {
  const { clientSeq, seq } = answer;
  const end = indexOf(writer, clientSeq + 1n);
  if (end > events.length) return [`${clientSeq} acknowledged, and never sent`];
  if (seq === 0n) {
    const ofStream = between(events, writer, { after: opened, upTo: clientSeq });
    if (ofStream.every(({ key }) => key === undefined)) return [];
  }
  let last = end - 1;
  while (last >= 0 && events[last]?.key === undefined) last -= 1;
  const covered = events[last];
  if (covered === undefined) return [];
  if (covered.seq === undefined) return [`${clientSeq} acknowledged, and not there`];
  return seq === undefined || seq === covered.seq
    ? []
    : [`${clientSeq} acknowledged with seq ${seq}, and is at ${covered.seq}`];
}

function between(
  events: Places["events"],
  writer: WriterRecord,
  { after, upTo }: { readonly after: bigint; readonly upTo: bigint },
): Places["events"] {
  return events.slice(indexOf(writer, after + 1n), indexOf(writer, upTo + 1n));
}

/** Index of a number among the events of a writer; 0 for numbers before it. */
function indexOf({ firstClientSeq }: WriterRecord, clientSeq: bigint): number {
  return clientSeq < firstClientSeq ? 0 : Number(clientSeq - firstClientSeq);
}

function openingProblems(writer: WriterRecord): readonly string[] {
  const { name, sent, openings } = writer;
  const [first] = openings;
  if (first === undefined) return [];
  const refusedUpTo = ({ lastClientSeq }: Opening): bigint => {
    const before = sent.slice(0, indexOf(writer, lastClientSeq + 1n));
    return BigInt(before.filter((event) => event === undefined).length);
  };
  return openings.flatMap((opening) => {
    const due = first.refused + refusedUpTo(opening) - refusedUpTo(first);
    const { lastClientSeq, refused } = opening;
    return refused === due
      ? []
      : [`${name}: opened at ${lastClientSeq} with ${refused} refused, and not ${due}`];
  });
}

function successionProblems(places: readonly Places[]): readonly string[] {
  const misnumbered = places.flatMap(({ writer }, at) => {
    const { name, epoch, firstClientSeq } = writer;
    const isFirst = places.findIndex((other) => other.writer.epoch === epoch) === at;
    return isFirst && firstClientSeq !== 1n
      ? [`${name}: its epoch began with number ${firstClientSeq}`]
      : [];
  });
  const spans = places.flatMap(({ writer, events }) => {
    const seqs = events
      .flatMap(({ seq }) => seq ?? [])
      .toSorted((one, other) => (one < other ? -1 : 1));
    const [first] = seqs;
    const last = seqs.at(-1);
    return first === undefined || last === undefined ? [] : [{ name: writer.name, first, last }];
  });
  const behind = spans.flatMap(({ name, first }, at) => {
    const before = spans[at - 1];
    return before === undefined || before.last < first
      ? []
      : [`${before.name}: seq ${before.last} is behind ${first}, the first of ${name}`];
  });
  return [...misnumbered, ...behind];
}

/** The same for equal JSON, with any order of keys. */
function keyOf({ eventType, value }: ExpectedEvent): string {
  return `${eventType} ${JSON.stringify(value, (_, one: unknown) => sorted(one))}`;
}

function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value);
  return Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

function shortened(problems: readonly string[]): readonly string[] {
  const more = problems.length - PROBLEMS_MAX;
  return more > 0 ? [...problems.slice(0, PROBLEMS_MAX), `and ${more} more`] : problems;
}

// The rows of sessions, read without the code of the service, and their events as it expands them.

const PAGE_ROWS = 1_000;

export async function readStoredSessions(
  { sql, address }: { readonly sql: postgres.Sql; readonly address: string },
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, StoredSession>> {
  const { rows, counters } = await readWitness(sql, sessionIds);
  const events = rows.filter(({ stream }) => stream === "events");
  const bySession = Map.groupBy(events, ({ sessionId }) => sessionId);
  const client = new RpcClient(address);
  const sessions = new Map<string, StoredSession>();
  for (const sessionId of sessionIds) {
    sessions.set(sessionId, {
      rows: bySession.get(sessionId) ?? [],
      events: await expandedOf(client, sessionId),
      counter: counters.get(sessionId)?.events ?? 0n,
    });
  }
  client.close();
  return sessions;
}

async function expandedOf(client: RpcClient, sessionId: string): Promise<readonly StoredRow[]> {
  const events: StoredRow[] = [];
  for (let afterSeq = 0n; ; ) {
    const request = { sessionId, expand: true, pageSize: PAGE_ROWS, afterSeq };
    const page = await client.unary(SessionService.method.listSessionEvents, request);
    events.push(...page.items);
    if (!page.hasMore) return events;
    afterSeq = page.nextAfterSeq;
  }
}
