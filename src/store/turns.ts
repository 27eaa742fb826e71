/**
 * The state of a session for a claim, and the arrivals that its turn would take (ledger_read_turns,
 * migrations/session.sql). Claims that come meanwhile share the next statement.
 */
import { sql } from "drizzle-orm";
import { messageColumns, optionalBigintOf, optionalTextOf, rowOf } from "./columns.ts";
import {
  bigintOf,
  type Database,
  type Fields,
  type FixedStatement,
  SERVER_TEXT,
} from "./database.ts";
import type { RunState } from "./cancels.ts";
import { readPage, readRow } from "./pages.ts";
import type { MessageRow } from "./rows.ts";

/** Arrivals of one turn; a turn has fewer when its messages are large. */
const TURN_ROWS_MAX = 1_000;
/** Statements of claims in flight; the next claims wait for one of them. */
const READS_MAX = 2;
/** Claims of one statement. Each of them may have 3 MiB of arrivals. A sharded engine has one claim in each. */
const CLAIMS_MAX = 16;

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

export interface TurnState extends Pick<RunState, "isDeleted" | "openRunId" | "epoch"> {
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  /** The watermark. */
  readonly turnSeq: bigint;
  /** The number of waiting arrivals. */
  readonly pending: number;
  /** The watermark before the next turn: below `turnSeq` in a redelivery. */
  readonly fromSeq: bigint;
  /** Messages between the two, which wait again in a redelivery. */
  readonly redelivered: number;
  /** The start of the run of this key, if it is stored. */
  readonly repeatedSeq: bigint | undefined;
  /** The next arrivals; empty when the key is stored. */
  readonly arrivals: readonly MessageRow[];
}

export type TurnStore = ReturnType<typeof createTurnStore>;

export function createTurnStore(database: Database) {
  return {
    readTurn: sharedReads(database),
    /** The start of a run that a claim has stored; undefined: it was erased. */
    readStarted: (sessionId: string, seq: bigint) =>
      readRow(database, { stream: "events", sessionId, seq }),
    /** The arrivals from `first` to `last`, as many as were given to that run. */
    async readTaken(sessionId: string, range: { readonly first: bigint; readonly last: bigint }) {
      const { first, last } = range;
      const taken: MessageRow[] = [];
      for (let after = first - 1n; after < last; ) {
        const page = await readPage(database, {
          stream: "messages",
          sessionId,
          after,
          before: last + 1n,
          rowsMax: TURN_ROWS_MAX,
          bytesMax: Number.MAX_SAFE_INTEGER,
          filter: { eventTypes: ["user"] },
        });
        taken.push(...page.rows);
        if (!page.hasMore) break;
        after = page.nextAfter;
      }
      return taken;
    },
  };
}

interface WaitingClaim {
  readonly request: TurnRequest;
  readonly resolve: (state: TurnState | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/** A claim that finds no statement in flight is read at once, alone. Undefined: no such session. */
function sharedReads(database: Database): (request: TurnRequest) => Promise<TurnState | undefined> {
  const waiting: WaitingClaim[] = [];
  const { sessionCallsMax: readsMax = READS_MAX } = database;
  const claimsMax = database.sessionCallsMax === undefined ? CLAIMS_MAX : 1;
  let reads = 0;
  async function read(claims: readonly WaitingClaim[]): Promise<void> {
    try {
      const rows = await database.run(turnsStatement(claims.map(({ request }) => request)));
      database.onAnswer(rows[0]?.["server"]);
      const found = Map.groupBy(rows, (row) => Number(row["claim"]));
      claims.forEach(({ request, resolve }, at) => {
        resolve(stateOf(request.sessionId, found.get(at) ?? []));
      });
    } catch (error) {
      for (const { reject } of claims) reject(error);
    } finally {
      reads -= 1;
      readNext();
    }
  }
  function readNext(): void {
    if (waiting.length === 0 || reads === readsMax) return;
    reads += 1;
    void read(waiting.splice(0, claimsMax));
  }
  return (request) =>
    new Promise((resolve, reject) => {
      waiting.push({ request, resolve, reject });
      readNext();
    });
}

const READ_TURNS = `select *, ${SERVER_TEXT} as server from ledger_read_turns($1::text::json)`;

function turnsStatement(requests: readonly TurnRequest[]): FixedStatement {
  const claims = requests.map(({ sessionId, key, upToSeq, rowsMax, bytesMax, redeliver }, n) => ({
    n,
    s: sessionId,
    k: key,
    u: upToSeq.toString(),
    r: rowsMax,
    b: bytesMax,
    a: redeliver,
  }));
  return { text: READ_TURNS, values: [JSON.stringify(claims)] };
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
  return {
    isDeleted: first["deleted"] === true,
    messageSeq: bigintOf(first["message_seq"]),
    eventSeq: bigintOf(first["event_seq"]),
    turnSeq: bigintOf(first["turn_seq"]),
    pending: Number(first["pending_count"]),
    openRunId: optionalTextOf(first["open_run_id"]) ?? "",
    epoch: optionalBigintOf(first["producer_epoch"]),
    fromSeq: bigintOf(first["from_seq"]),
    redelivered: Number(first["redelivered"]),
    repeatedSeq: optionalBigintOf(first["stored_seq"]),
    arrivals:
      first["seq"] === null
        ? []
        : rows.map((row) => rowOf("messages", sessionId, messageColumns(row))),
  };
}
