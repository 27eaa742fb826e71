/** A session to read from, put into the table by the store's own append, in large batches. */
import { v7 as uuidv7 } from "uuid";
import { append } from "../../src/store/append.ts";
import { createDatabase } from "../../src/store/database.ts";
import { type NewRow, type Push, storedBytesOf } from "../../src/store/rows.ts";
import type { Bench } from "./bench.ts";
import { payloadOf } from "./bodies.ts";
import type { Ledger } from "./servers.ts";

export interface FilledSession {
  readonly sessionId: string;
  readonly rows: number;
  /** Every RARE_EVERY-th row has this type. */
  readonly rareType: string;
  /** Half of the rows were created before it, half at it or after. */
  readonly middleMicros: bigint;
}

/** So that a type and half of the time together match 1 % of the rows. */
const RARE_EVERY = 50;
const BATCH_ROWS = 1_000;
const STATEMENT_LIMIT_MS = 30_000;
/** 2026-01-01T00:00:00Z; one row a millisecond. */
const BEGAN_MICROS = 1_767_225_600_000_000n;
const MICROS_PER_ROW = 1_000n;

export async function fillSession(
  bench: Bench,
  ledger: Ledger,
  options: { readonly rows: number },
): Promise<FilledSession> {
  const sessionId = "bench-filled";
  const database = createDatabase({
    url: () => ledger.databaseUrl,
    connectionsMax: 1,
    statementTimeoutMs: STATEMENT_LIMIT_MS,
    lockTimeoutMs: STATEMENT_LIMIT_MS,
  });
  await database.start();
  try {
    for (let from = 0; from < options.rows; from += BATCH_ROWS) {
      bench.signal.throwIfAborted();
      const count = Math.min(BATCH_ROWS, options.rows - from);
      const pushes = Array.from({ length: count }, (_, n) => pushOf(sessionId, from + n));
      await append(database, pushes, { createMissing: true, wait: true });
    }
    // As autovacuum does by and by: without it the first reads write hint bits as well.
    await ledger.sql`vacuum analyze session_events`;
  } finally {
    await database.stop();
  }
  const middleMicros = BEGAN_MICROS + BigInt(Math.floor(options.rows / 2)) * MICROS_PER_ROW;
  return { sessionId, rows: options.rows, rareType: RARE, middleMicros };
}

const RARE = "STEP_STARTED";
const COMMON = "TEXT_MESSAGE_CONTENT";
const COMMON_PAYLOAD = payloadOf(COMMON);
const RARE_PAYLOAD = JSON.stringify({ type: RARE, stepName: "think" });

function pushOf(sessionId: string, index: number): Push {
  const isRare = index % RARE_EVERY === 0;
  const row: NewRow = {
    id: uuidv7(),
    eventType: isRare ? RARE : COMMON,
    payload: isRare ? RARE_PAYLOAD : COMMON_PAYLOAD,
    createdAtMicros: BEGAN_MICROS + BigInt(index) * MICROS_PER_ROW,
    completedAtMicros: undefined,
    eventCount: 1,
    fragments: undefined,
    conformant: true,
    mark: undefined,
    sender: undefined,
    sentAtMicros: undefined,
  };
  const unkeyed = { key: undefined, digest: undefined, epoch: undefined, range: undefined };
  return {
    sessionId,
    stream: "events",
    ...unkeyed,
    actor: undefined,
    rows: [row],
    bytes: storedBytesOf([row]),
  };
}
