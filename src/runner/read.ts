import { ledger, type LedgerClient } from "./client.ts";
import { resume } from "./resume.ts";
import { retrying, type RetryOptions } from "./retry.ts";
import { type LedgerRow, lastSeqOf, type StreamName } from "./rows.ts";

export interface ReadRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  /** Rows after this number; 0 reads from the beginning. */
  readonly afterSeq: bigint;
}

/** What the session holds now, page by page, and then the end. */
export async function* readRows(
  client: LedgerClient,
  { afterSeq, ...request }: ReadRequest,
  options: RetryOptions,
): AsyncGenerator<LedgerRow, void, undefined> {
  let cursor = afterSeq;
  for (;;) {
    const page = await retrying(
      () => readPage(client, { ...request, afterSeq: cursor }, options.signal),
      (failure) => failure.wasLost || failure.wasRefusedForNow,
      options,
    );
    yield* page.items;
    if (!page.hasMore) return;
    if (page.nextAfterSeq <= cursor) throw new Error("a page did not move the cursor");
    cursor = page.nextAfterSeq;
  }
}

/** What the session holds, then what comes, without end. */
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

/** The most a page may hold; one of large rows ends sooner by itself. */
const PAGE_ROWS = 1_000;

interface Page {
  readonly items: readonly LedgerRow[];
  readonly nextAfterSeq: bigint;
  readonly hasMore: boolean;
}

function readPage(
  client: LedgerClient,
  { stream, sessionId, afterSeq }: ReadRequest,
  signal: AbortSignal | undefined,
): Promise<Page> {
  const options = signal === undefined ? {} : { signal };
  const request = { sessionId, afterSeq, pageSize: PAGE_ROWS };
  return stream === "events"
    ? client.call(ledger.listSessionEvents, request, options)
    : client.call(ledger.listSessionMessages, request, options);
}

function openWatch(
  client: LedgerClient,
  { stream, sessionId, afterSeq }: ReadRequest,
  { signal, onAttached }: { readonly signal?: AbortSignal; readonly onAttached: () => void },
): AsyncGenerator<LedgerRow, void, undefined> {
  const options = signal === undefined ? { onAttached } : { signal, onAttached };
  const request = { sessionId, afterSeq };
  return stream === "events"
    ? client.watch(ledger.watchSessionEvents, request, options)
    : client.watch(ledger.watchSessionMessages, request, options);
}
