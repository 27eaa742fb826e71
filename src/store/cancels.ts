/**
 * A cancel is a message, and the row of its session names it until the run ends (`cancel_seq`,
 * migrations/append.sql). So a partial index, nearly always empty, finds the cancels of open runs.
 */
import { type SQL, sql } from "drizzle-orm";
import { optionalBigintOf, optionalTextOf, TABLE } from "./columns.ts";
import { bigintOf, type Database, SERVER } from "./database.ts";
import { readRow } from "./pages.ts";

/** The state of a session for a cancel, and for the end of a cancelled run. */
export interface RunState {
  readonly isDeleted: boolean;
  /** Empty: no run is open. */
  readonly openRunId: string;
  readonly epoch: bigint | undefined;
  /** The message that asked to end the open run. */
  readonly cancelSeq: bigint | undefined;
  /** The message with the key. */
  readonly repeatedSeq: bigint | undefined;
}

/** A cancel of a run that is still open. */
export interface OpenCancel {
  readonly sessionId: string;
  readonly runId: string;
  readonly seq: bigint;
  /** Undefined: the message was erased. */
  readonly payload: string | undefined;
  /** The time since the cancel, by the clock of the database; undefined with the payload. */
  readonly waitedMs: number | undefined;
}

interface CancelsPage {
  /** The session before the first one. */
  readonly after: string;
  readonly rowsMax: number;
}

export type CancelStore = ReturnType<typeof createCancelStore>;

export function createCancelStore(database: Database) {
  return {
    /** Undefined: no such session. */
    async readRun(run: {
      readonly sessionId: string;
      readonly key: string;
    }): Promise<RunState | undefined> {
      const { sessionId, key } = run;
      const [row] = await database.run(sql`
        select s.deleted_at is not null as deleted, s.open_run_id, s.producer_epoch, s.cancel_seq,
          (select seq from ${TABLE.messages}
            where session_id = ${sessionId} and idempotency_key = ${key} limit 1) as stored_seq,
          ${SERVER} as server
        from sessions s where s.id = ${sessionId}`);
      database.onAnswer(row?.["server"]);
      if (row === undefined) return undefined;
      return {
        isDeleted: row["deleted"] === true,
        openRunId: optionalTextOf(row["open_run_id"]) ?? "",
        epoch: optionalBigintOf(row["producer_epoch"]),
        cancelSeq: optionalBigintOf(row["cancel_seq"]),
        repeatedSeq: optionalBigintOf(row["stored_seq"]),
      };
    },
    /** Undefined: the message was erased. */
    readCancel: (sessionId: string, seq: bigint) =>
      readRow(database, { stream: "messages", sessionId, seq }),
    /** In the order of the sessions' ids. */
    async openCancels(page: CancelsPage): Promise<readonly OpenCancel[]> {
      const open: OpenCancel[] = [];
      for (const row of await database.run(openCancelsStatement(page))) {
        const [sessionId, seq] = [String(row["id"]), bigintOf(row["cancel_seq"])];
        const [message] = await database.run(cancelStatement(sessionId, seq));
        open.push({
          sessionId,
          runId: String(row["open_run_id"]),
          seq,
          payload: optionalTextOf(message?.["payload"]),
          waitedMs: message && Number(message["waited_ms"]),
        });
      }
      return open;
    },
  };
}

/** Exported for the plan test, as the other statement. */
export function openCancelsStatement({ after, rowsMax }: CancelsPage): SQL {
  return sql`
    select id, open_run_id, cancel_seq from sessions
    where deleted_at is null and cancel_seq is not null and id > ${after}
    order by id limit ${rowsMax}`;
}

export function cancelStatement(sessionId: string, seq: bigint): SQL {
  return sql`
    select payload, extract(epoch from clock_timestamp() - recorded_at) * 1000 as waited_ms
    from ${TABLE.messages} where session_id = ${sessionId} and seq = ${seq.toString()}::bigint`;
}
