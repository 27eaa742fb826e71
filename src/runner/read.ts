/** Reads a session: its pages, and a watch that survives lost connections. */
import { systemClock } from "../base/clock.ts";
import { ledger, type LedgerClient } from "./client.ts";
import { RpcFailure } from "./failure.ts";
import { Retries, type RetryOptions } from "./retry.ts";
import { type LedgerRow, lastSeqOf, type StreamName } from "./rows.ts";

export interface ReadRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  /** Rows after this number; 0 reads from the beginning. */
  readonly afterSeq: bigint;
  /** Raw events instead of rows; `afterSeq` may be any event's number. Only for events. */
  readonly expand?: boolean;
}

/** The head of a session's stream: the last number in use. */
export async function headSeq(
  client: LedgerClient,
  { stream, sessionId }: Pick<ReadRequest, "stream" | "sessionId">,
  options: RetryOptions,
): Promise<bigint> {
  const newest = { sessionId, descending: true, pageSize: 1 };
  const { items } = await listRows(client, { stream, ...newest }, options);
  return items[0] === undefined ? 0n : lastSeqOf(items[0]);
}

/** The session's current rows, or those up to a number, page by page, and then the end. */
export async function* readRows(
  client: LedgerClient,
  { afterSeq, untilSeq, ...request }: ReadRequest & { readonly untilSeq?: bigint },
  options: RetryOptions,
): AsyncGenerator<LedgerRow, void, undefined> {
  let cursor = afterSeq;
  for (;;) {
    if (untilSeq !== undefined && cursor >= untilSeq) return;
    const next = { ...request, afterSeq: cursor, pageSize: PAGE_ROWS };
    const page = await listRows(client, next, options);
    for (const row of page.items) {
      if (untilSeq !== undefined && row.seq > untilSeq) return;
      yield row;
    }
    if (!page.hasMore) return;
    if (page.nextAfterSeq <= cursor) throw new Error("a page did not move the cursor");
    cursor = page.nextAfterSeq;
  }
}

/** The session's current rows, then new ones, without end. */
export function followRows(
  client: LedgerClient,
  { stream, sessionId, afterSeq, expand = false }: ReadRequest,
  options: RetryOptions,
): AsyncGenerator<LedgerRow, void, undefined> {
  const watch: Resumable<LedgerRow>["open"] = (cursor, onAttached) => {
    const request = { sessionId, afterSeq: cursor };
    const limits = { ...options, onAttached };
    return stream === "events"
      ? client.watch(ledger.watchSessionEvents, { ...request, expand }, limits)
      : client.watch(ledger.watchSessionMessages, request, limits);
  };
  return resume({ open: watch, afterSeq, cursorOf: lastSeqOf }, options);
}

/** The most rows of a page; a page of large rows ends sooner. */
const PAGE_ROWS = 1_000;

/** The fields of a request for either stream; the request for messages has no `expand`. */
interface PageRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly pageSize: number;
  readonly afterSeq?: bigint;
  readonly descending?: boolean;
  readonly expand?: boolean;
}

interface Page {
  readonly items: readonly LedgerRow[];
  readonly nextAfterSeq: bigint;
  readonly hasMore: boolean;
}

/** Repeated while the service does not answer: a read may always be repeated. */
function listRows(
  client: LedgerClient,
  { stream, expand = false, ...request }: PageRequest,
  options: RetryOptions,
): Promise<Page> {
  return stream === "events"
    ? client.call(ledger.listSessionEvents, { ...request, expand }, options)
    : client.call(ledger.listSessionMessages, request, options);
}

interface Resumable<Row> {
  /** Watches from a cursor; `onAttached` is called when the service has accepted the watch. */
  readonly open: (afterSeq: bigint, onAttached: () => void) => AsyncGenerator<Row, void, undefined>;
  readonly afterSeq: bigint;
  /** The cursor after a row. */
  readonly cursorOf: (row: Row) => bigint;
}

/**
 * A watch that was open this long worked; one that ends sooner counts as one more failure in a row.
 */
const STEADY_MS = 5_000;

/**
 * One endless watch over several connections: each row after the cursor once, in order, also
 * through restarts of the service. A watch that ends without a failure was ended by a proxy, so it
 * is opened again, like a failed one. A watch whose token ended while it was open is opened again
 * too. Other failures (no such session, a cursor above the head, a token that is refused from the
 * start) do not pass with time, and the caller gets them.
 */
export async function* resume<Row>(
  { open, afterSeq, cursorOf }: Resumable<Row>,
  options: RetryOptions,
): AsyncGenerator<Row, void, undefined> {
  const { clock = systemClock } = options;
  const retries = new Retries(options);
  let cursor = afterSeq;
  for (;;) {
    let attachedMs: number | undefined;
    try {
      for await (const row of open(cursor, () => (attachedMs = clock.monotonicMs()))) {
        const next = cursorOf(row);
        // A cursor inside a merged row makes that row come again; a row that ends at or before the
        // cursor is skipped.
        if (next <= cursor) continue;
        cursor = next;
        retries.succeeded();
        yield row;
      }
      throw new RpcFailure("UNAVAILABLE", "the watch ended");
    } catch (error) {
      if (!(error instanceof RpcFailure)) throw error;
      // A token that was accepted has ended since; its source may have another one by now.
      const isOver = error.code === "UNAUTHENTICATED" && attachedMs !== undefined;
      if (!(error.mayPass || isOver)) throw error;
      if (attachedMs !== undefined && clock.monotonicMs() - attachedMs >= STEADY_MS)
        retries.succeeded();
      await retries.pauseAfter(error);
    }
  }
}
