/**
 * Appends pushes to their sessions: many in one call, one transaction, one fsync (ledger_append,
 * migrations/ledger.sql). The function stores a whole batch, or names the pushes that must be
 * refused; then the others are sent again. Each turn settles at least one push; an ordinary batch
 * takes one.
 */
import { sql } from "drizzle-orm";
import {
  type Amount,
  arrange,
  type Arranged,
  type Arrangement,
  type SessionBase,
  positionsOf,
  roomFor,
  type SessionUse,
} from "./arrange.ts";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import { type Database, SERVER_TEXT } from "./database.ts";
import type { Outcome, Push, SessionLimits, StreamRange } from "./rows.ts";
import { isoOf } from "./columns.ts";

export interface AppendOptions {
  readonly createMissing: boolean;
  /** True: wait for locked sessions, for at most lock_timeout, instead of answering `busy`. */
  readonly wait: boolean;
  /** Absent: a session may hold any amount. */
  readonly limits?: SessionLimits;
  /** Called with the highest amount that a session of a batch held before it was stored. */
  readonly onMost?: (amount: Amount) => void;
}

/** The answer of ledger_append: one of the four. */
interface AppendAnswer {
  /** Stored: session, message_seq, event_seq, open run, each from before the batch. */
  readonly bases?: readonly (readonly [string, string, string, string | null])[];
  /** With `bases`: the most rows, and bytes, that one of these sessions held before. */
  readonly most?: readonly [number, number];
  /** Nothing was stored, because of these sessions. */
  readonly sessions?: readonly (readonly [string, "busy" | "not_found" | "deleted"])[];
  /** Nothing was stored, because of these pushes: position, reason, number of the stored row. */
  readonly pushes?: readonly RefusedEntry[] | null;
  readonly ranges?: readonly RefusedEntry[] | null;
  /**
   * Nothing was stored, because these sessions have no room for all of it: the rows and bytes that
   * they hold, the length of the id of their open run, and their arrivals if they are limited.
   */
  readonly full?: readonly (readonly [string, number, number, number, number | null])[];
}
type RefusedEntry = readonly [number, Verdict, string | null];
type Verdict =
  | "stale_epoch"
  | "deduplicated"
  | "key_reused"
  | "turn_moved"
  | "stream_replaced"
  | "gap";

/**
 * Resolves after commit, with one outcome per push. No push may depend on an earlier one of the
 * batch (`Independent`). Rejects with the driver's error when the first turn fails. When a later
 * turn fails, its pushes are `failed`, and those of the turns after it, never sent, `busy`.
 */
export async function append(
  database: Database,
  pushes: readonly Push[],
  options: AppendOptions,
): Promise<readonly Outcome[]> {
  const outcomes = new Map<Push, Outcome>();
  const turns: (readonly Push[])[] = [pushes];
  for (let rest = turns.shift(); rest !== undefined; rest = turns.shift()) {
    if (rest.length === 0) continue;
    let turn: RoundResult;
    try {
      turn = await appendOnce(database, rest, options);
    } catch (error) {
      if (rest === pushes) throw error;
      for (const push of rest) outcomes.set(push, { kind: "failed", error });
      break;
    }
    for (const [push, outcome] of turn.settled) outcomes.set(push, outcome);
    const left = rest.filter((push) => !turn.settled.has(push));
    const next = left.filter((push) => !turn.later.has(push));
    if (next.length === rest.length) throw new Error("ledger_append settled nothing");
    turns.unshift(
      next,
      left.filter((push) => turn.later.has(push)),
    );
  }
  return pushes.map((push) => outcomes.get(push) ?? { kind: "busy" });
}

/**
 * Does everything that a push does in the database, without a row. Rejects, with the driver's
 * error, when a table, a function or a right is missing, and when the database is read-only.
 */
export async function appendNothing(database: Database): Promise<void> {
  await database.attempt(sql`
    with messages as (
      insert into session_messages select * from session_messages where false returning 1
    ), events as (
      insert into session_events select * from session_events where false returning 1
    )
    select ledger_append('{}', false, false, null, null, null, '[]') as answer,
      (select count(*) from messages) + (select count(*) from events) as rows`);
}

/** The result of a turn. Other pushes are sent again at once, those in `later` after them. */
interface RoundResult {
  readonly settled: ReadonlyMap<Push, Outcome>;
  readonly later: ReadonlySet<Push>;
}

const APPEND = `
  select ledger_append(array(select json_array_elements_text($1::text::json)), $2::boolean, $3::boolean,
    $4::text::json, $5::text::json, $6::text::json, $7::text::json)::text as answer,
    ${SERVER_TEXT} as server`;

async function appendOnce(
  database: Database,
  pushes: readonly Push[],
  options: AppendOptions,
): Promise<RoundResult> {
  const arrangement = arrange(pushes);
  const ids = JSON.stringify([...arrangement.sessions.keys()]);
  const values = [
    ids,
    options.createMissing,
    options.wait,
    judgedJson(pushes),
    messagesJson(arrangement),
    eventsJson(arrangement),
    usedJson(arrangement, options.limits),
  ];
  const [row] = await database.attempt({ text: APPEND, values });
  database.onAnswer(row?.["server"]);
  const answer: AppendAnswer = JSON.parse(String(row?.["answer"]));
  if (answer.most !== undefined) options.onMost?.({ rows: answer.most[0], bytes: answer.most[1] });
  return answer.full === undefined
    ? { settled: settled(pushes, arrangement, answer), later: NOTHING }
    : roomInAll(pushes, answer.full, options.limits);
}

const NOTHING: ReadonlySet<Push> = new Set();

function roomInAll(
  pushes: readonly Push[],
  full: NonNullable<AppendAnswer["full"]>,
  limits: SessionLimits | undefined,
): RoundResult {
  if (limits === undefined) throw new Error("ledger_append kept a limit that it was not given");
  const rooms = full.map(([sessionId, rows, bytes, runBytes, pending]) => {
    const own = pushes.filter((push) => push.sessionId === sessionId);
    return roomFor(own, { rows, bytes, runBytes, pending: pending ?? undefined }, limits);
  });
  return {
    settled: new Map(rooms.flatMap(({ refused }) => [...refused])),
    later: new Set(rooms.flatMap(({ later }) => [...later])),
  };
}

function settled(
  pushes: readonly Push[],
  arrangement: Arrangement,
  answer: AppendAnswer,
): ReadonlyMap<Push, Outcome> {
  const outcomes = new Map<Push, Outcome>();
  if (answer.bases !== undefined) {
    const bases = new Map(answer.bases.map((base) => [base[0], baseOf(base)]));
    const places = positionsOf(arrangement.rows, bases);
    for (const push of pushes) {
      outcomes.set(push, { kind: "stored", places: places.get(push) ?? [] });
    }
  }
  const sessions = new Map(answer.sessions);
  for (const push of pushes) {
    const kind = sessions.get(push.sessionId);
    if (kind !== undefined) outcomes.set(push, { kind });
  }
  for (const [index, kind, seq] of [...(answer.pushes ?? []), ...(answer.ranges ?? [])]) {
    const push = pushes[index];
    if (push === undefined) throw new Error("ledger_append names a push that was not sent");
    const storedSeq = seq === null ? undefined : BigInt(seq);
    outcomes.set(push, kind === "deduplicated" ? { kind, seq: storedSeq } : { kind });
  }
  return outcomes;
}

function baseOf([, messageSeq, eventSeq, openRunId]: readonly [
  string,
  string,
  string,
  string | null,
]): SessionBase {
  return {
    messageSeq: BigInt(messageSeq),
    eventSeq: BigInt(eventSeq),
    openRunId: openRunId ?? "",
  };
}

// JSON texts: JSON.stringify escapes natively, and an array per column would be escaped in script.
// The function reads undefined fields as null. Null instead of rows skips the statement.

function judgedJson(pushes: readonly Push[]): string | null {
  const judged = pushes.flatMap((push, u): object[] => {
    const { sessionId: s, range } = push;
    if (range !== undefined) return [{ u, s, ...rangeOf(range), id: push.rows[0]?.id }];
    if (push.key === undefined && push.epoch === undefined && push.seen === undefined) return [];
    const t = push.stream === "messages" ? "m" : "e";
    return [{ u, s, t, ...keyOf(push), c: seenOf(push) }];
  });
  return judged.length === 0 ? null : JSON.stringify(judged);
}

// The literals repeat nine lines: a spread takes 2.2 to 2.4 µs per row instead of 2.0 to 2.1 (Node
// 24.21, 600-byte payloads, batches of 40, best of four runs, three times).

function messagesJson({ rows }: Arrangement): string | null {
  return rowsJson(rows, "messages", ({ push, row, offset, isKeyed }) => ({
    s: push.sessionId,
    p: offset.toString(),
    id: row.id,
    ty: row.eventType,
    pl: row.payload,
    key: isKeyed ? push.key : undefined,
    dg: isKeyed ? hexOf(push.digest) : undefined,
    act: push.actor,
    ca: isoOf(row.createdAtMicros),
    snd: row.sender,
    st: isoOrUndefined(row.sentAtMicros),
  }));
}

function eventsJson({ rows }: Arrangement): string | null {
  return rowsJson(rows, "events", ({ push, row, offset, isKeyed, runId }) => ({
    s: push.sessionId,
    p: offset.toString(),
    id: row.id,
    ty: row.eventType,
    pl: row.payload,
    key: isKeyed ? push.key : undefined,
    dg: isKeyed ? hexOf(push.digest) : undefined,
    act: push.actor,
    ca: isoOf(row.createdAtMicros),
    co: isoOrUndefined(row.completedAtMicros),
    n: row.eventCount,
    w: runId !== undefined,
    rid: runId === "" ? undefined : runId,
    fr: hexOf(row.fragments),
    cf: row.conformant,
  }));
}

function rowsJson(
  rows: readonly Arranged[],
  stream: Push["stream"],
  encode: (arranged: Arranged) => object,
): string | null {
  const encoded: object[] = [];
  for (const arranged of rows) {
    if (arranged.push.stream === stream) encoded.push(encode(arranged));
  }
  return encoded.length === 0 ? null : JSON.stringify(encoded);
}

function keyOf(push: Push): object {
  return { key: push.key, dg: hexOf(push.digest), ep: push.epoch?.toString() };
}

function seenOf({ seen, cancels }: Push): object | undefined {
  if (seen === undefined) return undefined;
  return {
    t: seen.turnSeq?.toString(),
    r: seen.openRunId === "" ? undefined : seen.openRunId,
    e: seen.epoch?.toString(),
    v: seen.eventSeq?.toString(),
    x: cancels,
  };
}

function rangeOf(range: StreamRange): object {
  return {
    ep: range.epoch.toString(),
    st: range.stream.toString(),
    f: range.firstClientSeq.toString(),
    l: range.lastClientSeq.toString(),
  };
}

function usedJson({ sessions }: Arrangement, limits: SessionLimits | undefined): string {
  const uses = [...sessions.values()];
  return JSON.stringify(
    uses.map((use, index) => ({
      ...(index === 0 && limits !== undefined ? limitsOf(uses, limits) : undefined),
      s: use.sessionId,
      m: use.messages.toString(),
      e: use.events.toString(),
      n: use.rows,
      b: use.bytes,
      q: use.openRunRows,
      ep: use.epoch?.toString(),
      cs: use.lastClientSeq?.toString(),
      rf: use.refused === 0 ? undefined : use.refused,
      w: use.runId !== undefined,
      rid: use.runId === "" ? undefined : use.runId,
      t: turnsOf(use),
    })),
  );
}

function turnsOf({
  arrivals,
  started,
  turnSeq,
  taken,
  openTurnSeq,
  cancels,
}: SessionUse): object | undefined {
  const isChange = arrivals > 0 || started !== undefined || turnSeq !== undefined || cancels;
  if (!isChange) return undefined;
  return {
    u: arrivals,
    m: started?.messages.toString(),
    a: started?.arrivals,
    to: turnSeq?.toString(),
    k: taken,
    b: openTurnSeq?.toString(),
    x: cancels ? true : undefined,
  };
}

/** The limits, and the amounts below which the largest part of the batch has room. */
function limitsOf(
  uses: readonly SessionUse[],
  { sessionRowsMax: rx, sessionBytesMax: bx, pendingMax: px }: SessionLimits,
): object {
  let rows = 0;
  let bytes = 0;
  let arrivals = 0;
  let pending = Number.NEGATIVE_INFINITY;
  for (const use of uses) {
    rows = Math.max(rows, use.rows);
    arrivals += use.arrivals;
    pending = Math.max(pending, use.arrivals - use.taken);
    // With room for the longest id, the length of the open run's id need not be read.
    bytes = Math.max(bytes, use.bytes + use.openRunRows * ID_BYTES_MAX);
  }
  const room = arrivals === 0 ? {} : { px, pr: px - pending };
  return { rx, bx, rr: rx - rows, br: bx - bytes, ...room };
}

function isoOrUndefined(micros: bigint | undefined): string | undefined {
  return micros === undefined ? undefined : isoOf(micros);
}

function hexOf(bytes: Uint8Array | undefined): string | undefined {
  return bytes === undefined ? undefined : `\\x${Buffer.from(bytes).toString("hex")}`;
}
