import { ledger, type LedgerClient } from "./client.ts";
import { resume } from "./resume.ts";
import { retrying, type RetryOptions } from "./retry.ts";
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
  const page = await patiently(() => listRows(client, stream, newest, options.signal), options);
  return page.items.reduce((_, row) => lastSeqOf(row), 0n);
}

/** The session's current rows, or those up to a number, page by page, and then the end. */
export async function* readRows(
  client: LedgerClient,
  { stream, sessionId, afterSeq, ...request }: ReadRequest & { readonly untilSeq?: bigint },
  options: RetryOptions,
): AsyncGenerator<LedgerRow, void, undefined> {
  const { expand = false, untilSeq } = request;
  let cursor = afterSeq;
  for (;;) {
    if (untilSeq !== undefined && cursor >= untilSeq) return;
    const next = { sessionId, afterSeq: cursor, pageSize: PAGE_ROWS, expand };
    const page = await patiently(() => listRows(client, stream, next, options.signal), options);
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
  { afterSeq, ...request }: ReadRequest,
  options: RetryOptions,
): AsyncGenerator<LedgerRow, void, undefined> {
  return resume<LedgerRow>(
    {
      open: (cursor, onAttached) =>
        openWatch(client, { ...request, afterSeq: cursor }, { onAttached, ...options }),
      afterSeq,
      cursorOf: lastSeqOf,
    },
    options,
  );
}

/** The most rows of a page; a page of large rows ends sooner. */
const PAGE_ROWS = 1_000;

/** The fields of a request for either stream; the request for messages has no `expand`. */
interface PageRequest {
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

/** A read may always be repeated. */
function patiently<T>(read: () => Promise<T>, options: RetryOptions): Promise<T> {
  return retrying(read, (failure) => failure.mayPass, options);
}

function listRows(
  client: LedgerClient,
  stream: StreamName,
  { expand = false, ...request }: PageRequest,
  signal: AbortSignal | undefined,
): Promise<Page> {
  const options = signal === undefined ? {} : { signal };
  return stream === "events"
    ? client.call(ledger.listSessionEvents, { ...request, expand }, options)
    : client.call(ledger.listSessionMessages, request, options);
}

function openWatch(
  client: LedgerClient,
  { stream, sessionId, afterSeq, expand = false }: ReadRequest,
  { signal, onAttached }: { readonly signal?: AbortSignal; readonly onAttached: () => void },
): AsyncGenerator<LedgerRow, void, undefined> {
  const options = signal === undefined ? { onAttached } : { signal, onAttached };
  const request = { sessionId, afterSeq };
  return stream === "events"
    ? client.watch(ledger.watchSessionEvents, { ...request, expand }, options)
    : client.watch(ledger.watchSessionMessages, request, options);
}
