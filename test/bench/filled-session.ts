/** A session to read from. */
import { eventually } from "../support/eventually.ts";
import type { Bench } from "./bench.ts";
import { payloadOf } from "./bodies.ts";
import type { Ledger } from "./servers.ts";
import { BEGAN_MICROS, storeRows } from "./store-rows.ts";

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
/** One row a millisecond. */
const MICROS_PER_ROW = 1_000n;

export async function fillSession(
  bench: Bench,
  ledger: Ledger,
  options: { readonly rows: number },
): Promise<FilledSession> {
  const sessionId = "bench-filled";
  const rows = Array.from({ length: options.rows }, (_, n) => ({ sessionId, row: rowOf(n) }));
  await storeRows(bench, ledger, rows);
  await untilIndexed(ledger, sessionId);
  const middleMicros = BEGAN_MICROS + BigInt(Math.floor(options.rows / 2)) * MICROS_PER_ROW;
  return { sessionId, rows: options.rows, rareType: RARE, middleMicros };
}

/** The service reads new rows for the index of search, which would share its thread with a measured read. */
export async function untilIndexed({ sql }: Ledger, sessionId: string): Promise<void> {
  await eventually(async () => {
    const [found] = await sql<{ isIndexed: boolean }[]>`
      select max(recorded_at) < (select max(done_until) from leases) as "isIndexed"
      from session_events where session_id = ${sessionId}`;
    if (found?.isIndexed !== true) throw new Error(`${sessionId} is not indexed`);
  });
}

const RARE = "STEP_STARTED";
const COMMON = "TEXT_MESSAGE_CONTENT";
const COMMON_PAYLOAD = payloadOf(COMMON);
const RARE_PAYLOAD = JSON.stringify({ type: RARE, stepName: "think" });

function rowOf(index: number) {
  const isRare = index % RARE_EVERY === 0;
  return {
    eventType: isRare ? RARE : COMMON,
    payload: isRare ? RARE_PAYLOAD : COMMON_PAYLOAD,
    createdAtMicros: BEGAN_MICROS + BigInt(index) * MICROS_PER_ROW,
  };
}
