/** Reads of a whole session, page after page: by the service, and by SQL alone. */
import { create, toBinary } from "@bufbuild/protobuf";
import type postgres from "postgres";
import { ListSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { RpcClient } from "../support/grpc-client.ts";
import type { Bench } from "./bench.ts";
import { rounded } from "./figures.ts";
import type { FilledSession } from "./filled-session.ts";

/** The most that a page may have. */
export const PAGE_ROWS = 1_000;

const { listSessionEvents } = SessionService.method;
const CALL = { deadlineMs: 30_000 } as const;

/** Every row once, in order, without a hole; the bytes of all pages as they came. */
export async function checkPages(
  { signal }: Bench,
  client: RpcClient,
  { sessionId, rows }: FilledSession,
): Promise<number> {
  let bytes = 0;
  let last = 0n;
  let hasMore = true;
  while (hasMore) {
    signal.throwIfAborted();
    const request = { sessionId, pageSize: PAGE_ROWS, afterSeq: last };
    const page = await client.unary(listSessionEvents, request, CALL);
    bytes += toBinary(listSessionEvents.output, page).length;
    for (const { seq } of page.items) {
      if (seq !== last + 1n) throw new Error(`row ${seq} comes after row ${last}`);
      last = seq;
    }
    hasMore = page.hasMore;
  }
  if (last !== BigInt(rows)) throw new Error(`the service gave back ${last} of ${rows} rows`);
  return bytes;
}

export async function bytesOfPages(
  { signal }: Bench,
  client: RpcClient,
  { sessionId, rows }: FilledSession,
): Promise<number> {
  let bytes = 0;
  for (let from = 0; from < rows; from += PAGE_ROWS) {
    signal.throwIfAborted();
    const request = { sessionId, pageSize: PAGE_ROWS, afterSeq: BigInt(from) };
    const encoded = toBinary(
      ListSessionEventsRequestSchema,
      create(ListSessionEventsRequestSchema, request),
    );
    bytes += (await client.unaryBytes(listSessionEvents, encoded, CALL)).length;
  }
  return bytes;
}

/** The rows read. One connection, prepared; the columns that a page of the service is made of. */
export async function sqlPages(
  { signal }: Bench,
  sql: postgres.Sql,
  { sessionId, rows }: FilledSession,
): Promise<number> {
  let read = 0;
  for (let from = 0; from < rows; from += PAGE_ROWS) {
    signal.throwIfAborted();
    const page = await sql`
      select seq, id, event_type, payload, created_at, completed_at, event_count, run_id, fragments, conformant
      from session_events where session_id = ${sessionId} and seq > ${from} order by seq limit ${PAGE_ROWS}`;
    read += page.length;
  }
  return read;
}

export interface FilteredPages {
  readonly firstPageMs: number;
  readonly firstPageRows: number;
  /** Until the service says that there is no more. */
  readonly allMs: number;
  readonly pages: number;
  readonly rows: number;
}

export async function filteredPages(
  { signal }: Bench,
  client: RpcClient,
  session: FilledSession,
  half: { readonly createdBefore?: bigint; readonly createdAfter?: bigint },
): Promise<FilteredPages> {
  const { sessionId, rareType } = session;
  const times = {
    ...(half.createdBefore === undefined ? {} : { createdBefore: timeOf(half.createdBefore) }),
    ...(half.createdAfter === undefined ? {} : { createdAfter: timeOf(half.createdAfter) }),
  };
  const filter = { sessionId, pageSize: PAGE_ROWS, eventTypes: [rareType], ...times };
  const beganMs = performance.now();
  let page = await client.unary(listSessionEvents, filter, CALL);
  const first = { ms: performance.now() - beganMs, rows: page.items.length };
  let pages = 1;
  let rows = first.rows;
  while (page.hasMore) {
    signal.throwIfAborted();
    page = await client.unary(listSessionEvents, { ...filter, afterSeq: page.nextAfterSeq }, CALL);
    pages += 1;
    rows += page.items.length;
  }
  return {
    firstPageMs: rounded(first.ms),
    firstPageRows: first.rows,
    allMs: rounded(performance.now() - beganMs),
    pages,
    rows,
  };
}

function timeOf(micros: bigint): { seconds: bigint; nanos: number } {
  return { seconds: micros / 1_000_000n, nanos: Number(micros % 1_000_000n) * 1_000 };
}
