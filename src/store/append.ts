/**
 * Appends pushes to their sessions: many in one call, one transaction, one fsync
 * (ledger_append_pushes, migrations/append.sql, or the same with chains). Each session's pushes are stored together, or not at
 * all. If one of them is refused, the others of its session are `again`: they are sent once more.
 */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import { type Amount, arrange, type Arrangement, roomFor, type SessionUse } from "./arrange.ts";
import {
  type Database,
  type Field,
  type Fields,
  type FixedStatement,
  SERVER_TEXT,
} from "./database.ts";
import {
  type Outcome,
  placeRow,
  type Push,
  type SessionLimits,
  type StoredRow,
  type StreamRange,
} from "./rows.ts";
import {
  type ArrayType,
  EVENT_ARRAYS,
  eventValues,
  MESSAGE_ARRAYS,
  messageValues,
  rowOf,
  type ValuesOf,
} from "./columns.ts";

export interface AppendOptions {
  readonly createMissing: boolean;
  /** True: wait for the lock of one session, for at most lock_timeout, instead of answering `busy`. */
  readonly wait: boolean;
  /** False: the rows are in no chain (migrations/chain.sql). */
  readonly hasChains?: boolean;
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
 * error, when a table, a function or a right is missing, and when the database is read-only or may
 * lose commits.
 */
export async function appendNothing(
  database: Pick<Database, "attempt" | "onCommit">,
  { hasChains }: Required<Pick<AppendOptions, "hasChains">>,
): Promise<void> {
  // One table each: no node of a sharded engine is needed for them.
  for (const table of [sql`session_messages`, sql`session_events`])
    await database.attempt(sql`insert into ${table} select * from ${table} where false`);
  await database.attempt(sql`update sessions set message_seq = message_seq where false`);
  const options = { createMissing: false, wait: false, hasChains };
  const [answer] = await database.attempt(fixedStatementOf(arrange([]), options));
  database.onCommit(answer?.["server"]);
}

/**
 * Resolves after commit, with one outcome per push. No push may depend on an earlier one of the
 * batch (`Independent`). Rejects with the driver's error.
 */
export async function append(
  database: Pick<Database, "attempt" | "onCommit">,
  pushes: readonly Push[],
  options: AppendOptions,
): Promise<readonly Outcome[]> {
  const arrangement = arrange(pushes);
  const [answer] = await database.attempt(fixedStatementOf(arrangement, options));
  if (answer === undefined) throw new Error("the append did not answer");
  database.onCommit(answer["server"]);
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
  // Texts, because a number of JSON is exact up to 2^53 only; null: the session does not exist.
  const messageSeqs: readonly (string | null)[] = jsonOf(answer["message_seqs"]);
  const eventSeqs: readonly (string | null)[] = jsonOf(answer["event_seqs"]);
  const openRunIds: readonly (string | null)[] = jsonOf(answer["open_run_ids"]);
  for (const { row, use, offset, runId } of rows) {
    const index = use.place - 1;
    const before = (row.stream === "messages" ? messageSeqs : eventSeqs)[index];
    if (typeof before !== "string" || (verdicts[index] ?? null) !== null) continue;
    const seq = BigInt(before) + offset + 1n;
    placeRow(row, { sessionId: use.sessionId, seq, runId: runId ?? openRunIds[index] ?? "" });
  }
  return pushes.map(({ push, use }, index): Outcome => {
    const verdict = verdicts[use.place - 1] ?? "stored";
    switch (verdict) {
      case "stored":
        return { kind: "stored" };
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

/** A list as JSON text, which its reader gives a type; null: empty. */
function jsonOf(field: Field | undefined): readonly [] {
  return typeof field === "string" ? JSON.parse(field) : [];
}

const USE_ARRAYS = {
  session_ids: "text",
  used_messages: "bigint",
  used_events: "bigint",
  used_rows: "bigint",
  used_bytes: "bigint",
  used_open_run_rows: "bigint",
  epochs: "bigint",
  client_seqs: "bigint",
  refused_numbers: "bigint",
  new_run_ids: "text",
  arrivals: "bigint",
  taken_arrivals: "bigint",
  new_turn_seqs: "bigint",
  open_turn_seqs: "bigint",
  run_messages: "bigint",
  run_arrivals: "bigint",
  cancels: "boolean",
  run_outcomes: "text",
} as const;

function useValues(use: SessionUse): ValuesOf<typeof USE_ARRAYS> {
  return {
    session_ids: use.sessionId,
    used_messages: use.messages,
    used_events: use.events,
    used_rows: use.rows,
    used_bytes: use.bytes,
    used_open_run_rows: use.openRunRows,
    epochs: use.epoch,
    client_seqs: use.lastClientSeq,
    refused_numbers: use.refused || undefined,
    new_run_ids: use.runId,
    arrivals: use.arrivals || undefined,
    taken_arrivals: use.taken || undefined,
    new_turn_seqs: use.turnSeq,
    open_turn_seqs: use.openTurnSeq,
    run_messages: use.started?.messages,
    run_arrivals: use.started?.arrivals,
    cancels: use.cancels || undefined,
    run_outcomes: use.runOutcome,
  };
}

const ARRAYS = Object.entries<ArrayType>({ ...USE_ARRAYS, ...MESSAGE_ARRAYS, ...EVENT_ARRAYS });

const APPEND = appendBy("ledger_append_pushes");
const APPEND_CHAINED = appendBy("ledger_append_chained_pushes");

function appendBy(called: string): string {
  return `
  select array_to_json(message_seqs::text[])::text as message_seqs, array_to_json(event_seqs::text[])::text as event_seqs,
    array_to_json(open_run_ids)::text as open_run_ids,
    most_rows::text, most_bytes::text, array_to_json(verdicts)::text as verdicts,
    refused_pushes::text, full_sessions::text, ${SERVER_TEXT} as server
  from (select string_to_array($1, E'\\x01' || $2, '') as part offset 0) parts,
    ${called}(create_missing => $3::boolean, wait_for_locks => $4::boolean,
      conditions => part[1]::json, limits => part[2]::bigint[],
      ${ARRAYS.map(([name, type], index) => `${name} => ${parameterOf(`part[${index + 3}]`, type)}`).join(", ")})`;
}

/** A text has a separator before it: so one empty text is not no text. */
function parameterOf(part: string, type: ArrayType): string {
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
  { createMissing, wait, limits, hasChains = true }: AppendOptions,
): FixedStatement {
  const random = randomUUID();
  const messages: ValuesOf<typeof MESSAGE_ARRAYS>[] = [];
  const events: ValuesOf<typeof EVENT_ARRAYS>[] = [];
  for (const arranged of rows) {
    const { row } = arranged;
    if (row.stream === "messages") messages.push(messageValues(row, arranged));
    else events.push(eventValues(row, arranged));
  }
  const parts = [conditionsOf(pushes), limitsOf(uses, limits)];
  addArrays(parts, { arrays: USE_ARRAYS, values: uses.map(useValues), random });
  addArrays(parts, { arrays: MESSAGE_ARRAYS, values: messages, random });
  addArrays(parts, { arrays: EVENT_ARRAYS, values: events, random });
  const text = hasChains ? APPEND_CHAINED : APPEND;
  return { text, values: [parts.join(`\u0001${random}`), random, createMissing, wait] };
}

/**
 * Adds each array as a part, which is empty when all of its values are null. Values of most types need no
 * quotes in a literal of PostgreSQL. Texts are joined, because a literal of them is escaped in script.
 */
function addArrays<Arrays extends Readonly<Record<string, ArrayType>>>(
  parts: string[],
  {
    arrays,
    values,
    random,
  }: {
    readonly arrays: Arrays;
    readonly values: readonly ValuesOf<Arrays>[];
    readonly random: string;
  },
): void {
  for (const name in arrays) {
    const isText = arrays[name] === "text";
    let part = "";
    let isNull = true;
    for (const value of values) {
      const one = value[name];
      isNull &&= one === undefined;
      if (isText) part += `\u0002${random}${one ?? random}`;
      else part += `${part === "" ? "{" : ","}${one ?? "NULL"}`;
    }
    parts.push(isNull ? "" : isText ? part : `${part}}`);
  }
}

/** Of the pushes that are judged, by session; JSON has undefined fields as null. */
function conditionsOf(pushes: Arrangement["pushes"]): string {
  const conditions: Condition[] = [];
  for (const [number, { push, use }] of pushes.entries()) {
    const { range, key, epoch, seen, stream } = push;
    const session = use.place;
    if (range !== undefined) {
      conditions.push({ number, session, ...rangeOf(range), row_id: push.rows[0]?.id });
    } else if (key !== undefined || epoch !== undefined || seen !== undefined) {
      const digest = push.digest && `\\x${Buffer.from(push.digest).toString("hex")}`;
      const condition = { key, digest, epoch: epoch?.toString(), state: stateOf(push) };
      conditions.push({ number, session, stream: stream === "messages" ? "m" : "e", ...condition });
    }
  }
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
