/**
 * Appends pushes to their sessions: many in one call, one transaction, one fsync
 * (ledger_append_pushes, migrations/append.sql). Each session's pushes are stored together, or not at
 * all. If one of them is refused, the others of its session are `again`: they are sent once more.
 */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import {
  type Amount,
  arrange,
  type Arranged,
  type Arrangement,
  positionsOf,
  roomFor,
  type SessionUse,
} from "./arrange.ts";
import {
  type Database,
  type Field,
  type Fields,
  type FixedStatement,
  SERVER_TEXT,
} from "./database.ts";
import type { Outcome, Push, SessionLimits, StoredRow, StreamName, StreamRange } from "./rows.ts";
import { isoOf, rowOf } from "./columns.ts";

export interface AppendOptions {
  readonly createMissing: boolean;
  /** True: wait for the lock of one session, for at most lock_timeout, instead of answering `busy`. */
  readonly wait: boolean;
  /** Absent: a session may hold any amount. */
  readonly limits?: SessionLimits;
  /** Called with the highest amount that a session of a batch held before it was stored. */
  readonly onMost?: (amount: Amount) => void;
}

type Verdict = "busy" | "not_found" | "deleted" | "judged" | "full";

/** A refused push: its number in the batch, the reason, and the columns of the stored row. */
type RefusedPush = readonly [
  number,
  RefusedKind,
  readonly (string | number | boolean | null)[] | null,
];
type RefusedKind =
  | "stale_epoch"
  | "deduplicated"
  | "key_reused"
  | "turn_moved"
  | "stream_replaced"
  | "gap";

/**
 * A session without room: its place, rows and bytes, the bytes of the id of its open run, and its
 * arrivals if they are limited.
 */
type FullSession = readonly [number, number, number, number, number | null];

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
    ), changed as (
      update sessions set message_seq = message_seq where false returning 1
    )
    select count(*) from messages, events, changed`);
  await database.attempt(fixedStatementOf(arrange([]), { createMissing: false, wait: false }));
}

/**
 * Resolves after commit, with one outcome per push. No push may depend on an earlier one of the
 * batch (`Independent`). Rejects with the driver's error.
 */
export async function append(
  database: Pick<Database, "attempt" | "onAnswer">,
  pushes: readonly Push[],
  options: AppendOptions,
): Promise<readonly Outcome[]> {
  const arrangement = arrange(pushes);
  const [answer] = await database.attempt(fixedStatementOf(arrangement, options));
  if (answer === undefined) throw new Error("ledger_append_pushes did not answer");
  database.onAnswer(answer["server"]);
  const rows = Number(answer["most_rows"]);
  options.onMost?.({ rows, bytes: Number(answer["most_bytes"]) });
  return outcomesOf(arrangement, answer, options.limits);
}

/** In the order of the pushes. */
function outcomesOf(
  { pushes, rows, uses }: Arrangement,
  answer: Fields,
  limits: SessionLimits | undefined,
): readonly Outcome[] {
  const verdicts: readonly (Verdict | null)[] = jsonOf(answer["verdicts"]);
  const refusals: readonly RefusedPush[] = jsonOf(answer["refused_pushes"]);
  const refused = new Map(refusals.map((push) => [push[0], push]));
  const fullSessions: readonly FullSession[] = jsonOf(answer["full_sessions"]);
  const full = new Map<Push, Outcome>();
  for (const [place, ...held] of fullSessions) {
    const own = uses[place - 1]?.pushes ?? [];
    for (const [push, outcome] of outcomesOfFull(own, held, limits)) full.set(push, outcome);
  }
  const places = positionsOf(rows, {
    messageSeqs: numbersOf(answer["message_seqs"]),
    eventSeqs: numbersOf(answer["event_seqs"]),
    openRunIds: jsonOf(answer["open_run_ids"]),
  });
  return pushes.map(({ push, use }, index): Outcome => {
    const verdict = verdicts[use.place - 1] ?? "stored";
    switch (verdict) {
      case "stored":
        return { kind: "stored", places: places.get(push) ?? [] };
      case "judged": {
        const [, kind, columns] = refused.get(index) ?? [index, "again", null];
        if (kind !== "deduplicated") return { kind };
        return { kind, row: columns === null ? undefined : storedRowOf(push, columns) };
      }
      case "full":
        return full.get(push) ?? { kind: "again" };
      case "busy":
      case "not_found":
      case "deleted":
        return { kind: verdict };
    }
  });
}

function storedRowOf({ stream, sessionId }: Push, columns: NonNullable<RefusedPush[2]>): StoredRow {
  const texts = columns.map((column) => (column === null ? null : Buffer.from(textOf(column))));
  return rowOf(stream, sessionId, texts);
}

/** As PostgreSQL writes it. */
function textOf(column: string | number | boolean): string {
  return typeof column === "boolean" ? (column ? "t" : "f") : String(column);
}

function outcomesOfFull(
  pushes: readonly Push[],
  [rows, bytes, runBytes, pending]: readonly [number, number, number, number | null],
  limits: SessionLimits | undefined,
): ReadonlyMap<Push, Outcome> {
  if (limits === undefined)
    throw new Error("ledger_append_pushes kept a limit that it was not given");
  return roomFor(pushes, { rows, bytes, runBytes, pending: pending ?? undefined }, limits);
}

/** An array of numbers, as PostgreSQL writes it; null for a session that does not exist. */
function numbersOf(field: Field | undefined): readonly (bigint | undefined)[] {
  if (typeof field !== "string") return [];
  const texts = field.slice(1, -1).split(",");
  return texts.map((text) => (text === "NULL" ? undefined : BigInt(text)));
}

/** A list as JSON text, which its reader gives a type; null: empty. */
function jsonOf(field: Field | undefined): readonly [] {
  return typeof field === "string" ? JSON.parse(field) : [];
}

/** A parameter of the function with a value for each row, or for each session. */
interface Column<T> {
  readonly name: string;
  readonly type: "integer" | "bigint" | "uuid" | "timestamptz" | "bytea" | "boolean" | "text";
  /** Undefined: null. */
  readonly value: (item: T) => string | number | bigint | boolean | undefined;
}

const ROW_COLUMNS: readonly Column<Arranged>[] = [
  { name: "sessions", type: "integer", value: ({ use }) => use.place },
  { name: "places", type: "bigint", value: ({ offset }) => offset },
  { name: "ids", type: "uuid", value: ({ row }) => row.id },
  { name: "types", type: "text", value: ({ row }) => row.eventType },
  { name: "payloads", type: "text", value: ({ row }) => row.payload },
  { name: "created_at", type: "timestamptz", value: ({ row }) => isoOf(row.createdAtMicros) },
  { name: "keys", type: "text", value: ({ push, isKeyed }) => (isKeyed ? push.key : undefined) },
  {
    name: "digests",
    type: "bytea",
    value: ({ push, isKeyed }) => hexOf(isKeyed ? push.digest : undefined),
  },
  { name: "actors", type: "text", value: ({ push }) => push.actor },
];

const MESSAGE_COLUMNS: readonly Column<Arranged>[] = [
  ...ROW_COLUMNS,
  { name: "senders", type: "text", value: ({ row }) => row.sender },
  { name: "sent_at", type: "timestamptz", value: ({ row }) => isoOrUndefined(row.sentAtMicros) },
];

const EVENT_COLUMNS: readonly Column<Arranged>[] = [
  ...ROW_COLUMNS,
  {
    name: "completed_at",
    type: "timestamptz",
    value: ({ row }) => isoOrUndefined(row.completedAtMicros),
  },
  {
    name: "counts",
    type: "integer",
    value: ({ row }) => (row.eventCount === 1 ? undefined : row.eventCount),
  },
  { name: "run_ids", type: "text", value: ({ runId }) => runId },
  { name: "fragments", type: "bytea", value: ({ row }) => hexOf(row.fragments) },
  { name: "conformant", type: "boolean", value: ({ row }) => (row.conformant ? undefined : false) },
];

const USE_COLUMNS: readonly Column<SessionUse>[] = [
  { name: "session_ids", type: "text", value: ({ sessionId }) => sessionId },
  { name: "used_messages", type: "bigint", value: ({ messages }) => messages },
  { name: "used_events", type: "bigint", value: ({ events }) => events },
  { name: "used_rows", type: "bigint", value: ({ rows }) => rows },
  { name: "used_bytes", type: "bigint", value: ({ bytes }) => bytes },
  { name: "used_open_run_rows", type: "bigint", value: ({ openRunRows }) => openRunRows },
];

/** Of streams, runs and turns: most unary pushes change none. */
const CHANGE_COLUMNS: readonly Column<SessionUse>[] = [
  { name: "epochs", type: "bigint", value: ({ epoch }) => epoch },
  { name: "client_seqs", type: "bigint", value: ({ lastClientSeq }) => lastClientSeq },
  { name: "refused_numbers", type: "bigint", value: ({ refused }) => refused || undefined },
  { name: "new_run_ids", type: "text", value: ({ runId }) => runId },
  { name: "arrivals", type: "bigint", value: ({ arrivals }) => arrivals || undefined },
  { name: "taken_arrivals", type: "bigint", value: ({ taken }) => taken || undefined },
  { name: "new_turn_seqs", type: "bigint", value: ({ turnSeq }) => turnSeq },
  { name: "open_turn_seqs", type: "bigint", value: ({ openTurnSeq }) => openTurnSeq },
  { name: "run_messages", type: "bigint", value: ({ started }) => started?.messages },
  { name: "run_arrivals", type: "bigint", value: ({ started }) => started?.arrivals },
  { name: "cancels", type: "boolean", value: ({ cancels }) => cancels || undefined },
];

const APPEND = `
  select message_seqs::text, event_seqs::text, array_to_json(open_run_ids)::text as open_run_ids,
    most_rows::text, most_bytes::text, array_to_json(verdicts)::text as verdicts,
    refused_pushes::text, full_sessions::text, ${SERVER_TEXT} as server
  from (select string_to_array($1, E'\\x01' || $2, '') as part offset 0) parts,
    ledger_append_pushes(create_missing => $3::boolean, wait_for_locks => $4::boolean,
      conditions => part[1]::json, limits => part[2]::bigint[],
      ${[
        ...USE_COLUMNS,
        ...CHANGE_COLUMNS,
        ...MESSAGE_COLUMNS.map(({ name, type }) => ({ name: `message_${name}`, type })),
        ...EVENT_COLUMNS.map(({ name, type }) => ({ name: `event_${name}`, type })),
      ]
        .map(({ name, type }, index) => `${name} => ${parameterOf(`part[${index + 3}]`, type)}`)
        .join(", ")})`;

/** A text of a column has a separator before it: so one empty text is not no text. */
function parameterOf(part: string, type: Column<never>["type"]): string {
  return type === "text"
    ? `(string_to_array(${part}, E'\\x02' || $2, $2))[2:]`
    : `${part}::${type}[]`;
}

/**
 * All arrays are parts of one text, because the driver takes nearly a microsecond for a parameter.
 * The parts are divided by a random text, so no payload can have it.
 */
function fixedStatementOf(
  { pushes, rows, uses }: Arrangement,
  { createMissing, wait, limits }: AppendOptions,
): FixedStatement {
  const random = randomUUID();
  const ofStream = (stream: StreamName): readonly Arranged[] =>
    rows.filter(({ push }) => push.stream === stream);
  const parts = [
    conditionsOf(pushes),
    limitsOf(uses, limits),
    ...encoded(uses, USE_COLUMNS, random),
    ...encoded(uses.some(hasChange) ? uses : [], CHANGE_COLUMNS, random),
    ...encoded(ofStream("messages"), MESSAGE_COLUMNS, random),
    ...encoded(ofStream("events"), EVENT_COLUMNS, random),
  ];
  return { text: APPEND, values: [parts.join(`\u0001${random}`), random, createMissing, wait] };
}

function hasChange(use: SessionUse): boolean {
  const { epoch, lastClientSeq, refused, runId, arrivals, taken, turnSeq, started, cancels } = use;
  const isOfStream = epoch !== undefined || lastClientSeq !== undefined || refused > 0;
  const isOfTurn = arrivals > 0 || taken !== 0 || turnSeq !== undefined || started !== undefined;
  return isOfStream || isOfTurn || runId !== undefined || cancels;
}

/** Each column as a part; empty: null. */
function encoded<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  random: string,
): readonly string[] {
  if (items.length === 0) return columns.map(() => "");
  return columns.map(({ type, value }) =>
    type === "text" ? joinedOf(items, value, random) : literalOf(items, value),
  );
}

/** A literal of PostgreSQL, whose values need no quotes; empty when each value is null. */
function literalOf<T>(items: readonly T[], value: Column<T>["value"]): string {
  let text = "";
  let isNull = true;
  for (const item of items) {
    const one = value(item);
    isNull &&= one === undefined;
    text += text === "" ? "{" : ",";
    text += one ?? "NULL";
  }
  return isNull ? "" : `${text}}`;
}

/** Texts are joined, because a literal of texts would be escaped in script. */
function joinedOf<T>(items: readonly T[], value: Column<T>["value"], random: string): string {
  let text = "";
  let isNull = true;
  for (const item of items) {
    const one = value(item);
    isNull &&= one === undefined;
    text += `\u0002${random}`;
    text += one ?? random;
  }
  return isNull ? "" : text;
}

/** Of the pushes that are judged, by session; JSON has undefined fields as null. */
function conditionsOf(pushes: Arrangement["pushes"]): string {
  const conditions = pushes.flatMap(({ push, use }, number): Condition[] => {
    const { range, key, epoch, seen, stream } = push;
    const session = use.place;
    if (range !== undefined) {
      return [{ number, session, ...rangeOf(range), row_id: push.rows[0]?.id }];
    }
    if (key === undefined && epoch === undefined && seen === undefined) return [];
    const digest = push.digest && `\\x${Buffer.from(push.digest).toString("hex")}`;
    const condition = { key, digest, epoch: epoch?.toString(), state: stateOf(push) };
    return [{ number, session, stream: stream === "messages" ? "m" : "e", ...condition }];
  });
  if (conditions.length === 0) return "";
  return JSON.stringify(conditions.toSorted((one, other) => one.session - other.session));
}

interface Condition {
  readonly number: number;
  readonly session: number;
  readonly [field: string]: unknown;
}

function rangeOf({ epoch, stream, firstClientSeq, lastClientSeq }: StreamRange): object {
  return {
    epoch: epoch.toString(),
    producer_stream: stream.toString(),
    first: firstClientSeq.toString(),
    last: lastClientSeq.toString(),
  };
}

function stateOf({ seen, cancels }: Push): object | undefined {
  if (seen === undefined) return undefined;
  return {
    turn_seq: seen.turnSeq?.toString(),
    run_id: seen.openRunId === "" ? undefined : seen.openRunId,
    epoch: seen.epoch?.toString(),
    event_seq: seen.eventSeq?.toString(),
    uncancelled: cancels,
  };
}

/**
 * The limits of a session, and the amounts up to which a session has room for the largest part of
 * the batch: rows, bytes and arrivals of each.
 */
function limitsOf(uses: readonly SessionUse[], limits: SessionLimits | undefined): string {
  if (limits === undefined) return "";
  const { sessionRowsMax, sessionBytesMax, pendingMax } = limits;
  let rows = 0;
  let bytes = 0;
  let hasArrivals = false;
  let pending = Number.NEGATIVE_INFINITY;
  for (const use of uses) {
    rows = Math.max(rows, use.rows);
    hasArrivals ||= use.arrivals > 0;
    pending = Math.max(pending, use.arrivals - use.taken);
    // With room for the longest id, the length of the open run's id need not be read.
    bytes = Math.max(bytes, use.bytes + use.openRunRows * ID_BYTES_MAX);
  }
  const pendingRoom = hasArrivals ? pendingMax - pending : "NULL";
  return `{${sessionRowsMax},${sessionBytesMax},${pendingMax},${sessionRowsMax - rows},${sessionBytesMax - bytes},${pendingRoom}}`;
}

function isoOrUndefined(micros: bigint | undefined): string | undefined {
  return micros === undefined ? undefined : isoOf(micros);
}

/** Bytes in an array literal. */
function hexOf(bytes: Uint8Array | undefined): string | undefined {
  return bytes === undefined ? undefined : `"\\\\x${Buffer.from(bytes).toString("hex")}"`;
}
