/**
 * The state of a session for a claim, and the arrivals that its turn would take: one statement, one
 * snapshot, no lock; ledger_append_pushes compares it under the lock.
 */
import { type SQL, sql } from "drizzle-orm";
import { columnsOf, messageColumns, rowOf, storedBytes, TABLE } from "./columns.ts";
import { type Database, type Fields, SERVER } from "./database.ts";
import { readPage, readRow } from "./pages.ts";
import type { EventRow, MessageRow } from "./rows.ts";

/** The newest events that are searched for output of the lost run. */
const NEWEST_EVENTS_MAX = 100;
/** Arrivals of one turn; a turn has fewer when its messages are large. */
const TURN_ROWS_MAX = 1_000;

export interface TurnRequest {
  readonly sessionId: string;
  /** The key of the start of the run. */
  readonly key: string;
  /** Only arrivals up to this number. */
  readonly upToSeq: bigint;
  readonly rowsMax: number;
  /** The limit of stored bytes of all arrivals; a single arrival may have more. */
  readonly bytesMax: number;
  /** Also take the messages of the open run, if it has no output. */
  readonly redeliver: boolean;
}

export interface TurnState {
  readonly isDeleted: boolean;
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  /** The watermark. */
  readonly turnSeq: bigint;
  /** The number of waiting arrivals. */
  readonly pending: number;
  /** Empty: no run is open. */
  readonly openRunId: string;
  readonly epoch: bigint | undefined;
  /** The watermark before the next turn: below `turnSeq` in a redelivery. */
  readonly fromSeq: bigint;
  /** Messages between the two, which wait again in a redelivery. */
  readonly redelivered: number;
  /** The start of the run of this key, if it is stored. */
  readonly repeatedSeq: bigint | undefined;
  /** The next arrivals; empty when the key is stored. */
  readonly arrivals: readonly MessageRow[];
}

export interface TurnStore {
  /** Undefined: no such session. */
  readTurn(request: TurnRequest): Promise<TurnState | undefined>;
  /** The start of a run that a claim has stored; undefined: it was erased. */
  readStarted(sessionId: string, seq: bigint): Promise<EventRow | undefined>;
  /** The arrivals from `first` to `last`, as many as were given to that run. */
  readTaken(sessionId: string, taken: ClaimedRange): Promise<readonly MessageRow[]>;
}

export interface ClaimedRange {
  readonly first: bigint;
  readonly last: bigint;
}

export function createTurnStore(database: Database): TurnStore {
  return {
    async readTurn(request) {
      const rows = await database.run(turnStatement(request));
      database.onAnswer(rows[0]?.["server"]);
      return stateOf(request.sessionId, rows);
    },
    readStarted: (sessionId, seq) => readRow(database, { stream: "events", sessionId, seq }),
    async readTaken(sessionId, { first, last }) {
      const taken: MessageRow[] = [];
      for (let after = first - 1n; after < last; ) {
        const page = await readPage(database, {
          stream: "messages",
          sessionId,
          after,
          before: last + 1n,
          descending: false,
          rowsMax: TURN_ROWS_MAX,
          bytesMax: Number.MAX_SAFE_INTEGER,
          filter: ARRIVALS,
        });
        taken.push(...page.rows);
        if (!page.hasMore) break;
        after = page.nextAfter;
      }
      return taken;
    },
  };
}

const ARRIVALS = {
  eventTypes: ["user"],
  runId: "",
  createdAfterMicros: undefined,
  createdBeforeMicros: undefined,
};

/** Exported for the plan test. The conditions stand where they keep a part from being computed. */
export function turnStatement(request: TurnRequest): SQL {
  const { sessionId: id, key, upToSeq, rowsMax, bytesMax, redeliver } = request;
  return sql`
    with state as materialized (
      select deleted_at is not null as deleted, message_seq, event_seq, turn_seq, pending_count,
        open_run_id, producer_epoch, (
          select seq from ${TABLE.events}
          where session_id = ${id} and idempotency_key = ${key} limit 1) as stored_seq,
        case when ${redeliver}::boolean and open_turn_seq is not null and (
          select event_type from (
            select seq, event_type from ${TABLE.events} where session_id = ${id}
            order by seq desc limit ${NEWEST_EVENTS_MAX}
          ) newest where event_type <> 'META' order by seq desc limit 1) = 'RUN_STARTED'
        then open_turn_seq end as back_seq
      from sessions where id = ${id}
    ), turn as materialized (
      select *, coalesce(back_seq, turn_seq) as from_seq, case when back_seq is null then 0 else (
        select count(*) from ${TABLE.messages} where session_id = ${id}
          and seq > back_seq and seq <= turn_seq and event_type = 'user') end as redelivered
      from state
    )
    select turn.*, ${SERVER} as server, arrivals.*
    from turn left join (
      select ${columnsOf("messages")} from (
        select *, sum(${storedBytes("messages")}) over (order by seq) as bytes,
          row_number() over (order by seq) as place
        from (
          select * from ${TABLE.messages}
          where (select stored_seq is null and pending_count + redelivered > 0 from turn)
            and session_id = ${id} and seq > (select from_seq from turn)
            and seq <= ${upToSeq.toString()}::bigint and event_type = 'user'
          order by seq limit ${rowsMax}
        ) wanted
      ) counted
      where bytes <= ${bytesMax}::bigint or place = 1
    ) arrivals on true
    order by arrivals.seq`;
}

/** Looks at this number of waiting sessions, so that a scrape stays cheap. */
const WAITING_COUNTED_MAX = 10_000;

/** Sessions with waiting messages that were ever claimed, and others. */
export async function countWaiting(
  database: Database,
): Promise<{ readonly yes: number; readonly no: number }> {
  const [row] = await database.run(sql`
    select count(*) filter (where has_claimed) as yes, count(*) filter (where not has_claimed) as no
    from (
      select has_claimed from sessions where deleted_at is null and waiting_since is not null
      order by waiting_since desc limit ${WAITING_COUNTED_MAX}
    ) waiting`);
  return { yes: Number(row?.["yes"]), no: Number(row?.["no"]) };
}

function stateOf(sessionId: string, rows: readonly Fields[]): TurnState | undefined {
  const [first] = rows;
  if (first === undefined) return undefined;
  const openRunId = first["open_run_id"];
  return {
    isDeleted: first["deleted"] === true,
    messageSeq: seqOf(first["message_seq"]),
    eventSeq: seqOf(first["event_seq"]),
    turnSeq: seqOf(first["turn_seq"]),
    pending: Number(first["pending_count"]),
    openRunId: typeof openRunId === "string" ? openRunId : "",
    epoch: optionalSeqOf(first["producer_epoch"]),
    fromSeq: seqOf(first["from_seq"]),
    redelivered: Number(first["redelivered"]),
    repeatedSeq: optionalSeqOf(first["stored_seq"]),
    arrivals:
      first["seq"] === null
        ? []
        : rows.map((row) => rowOf("messages", sessionId, messageColumns(row))),
  };
}

function seqOf(field: Fields[string] | undefined): bigint {
  return BigInt(String(field));
}

function optionalSeqOf(field: Fields[string] | undefined): bigint | undefined {
  return field === null || field === undefined ? undefined : seqOf(field);
}
