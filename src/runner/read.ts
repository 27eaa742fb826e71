import { ledger, type LedgerClient } from "./client.ts";
import { resume } from "./resume.ts";
import { retrying, type RetryOptions } from "./retry.ts";
import { type LedgerRow, lastSeqOf, type StreamName } from "./rows.ts";

export interface ReadRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  /** Rows after this number; 0 reads from the beginning. */
  readonly afterSeq: bigint;
  /** Every event as it was before it was merged. Messages are never merged. */
  readonly expand: boolean;
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

interface Page {
  readonly items: readonly LedgerRow[];
  readonly nextAfterSeq: bigint;
  readonly hasMore: boolean;
}

function readPage(
  client: LedgerClient,
  { stream, sessionId, afterSeq, expand }: ReadRequest,
  signal: AbortSignal | undefined,
): Promise<Page> {
  const options = signal === undefined ? {} : { signal };
  return stream === "events"
    ? client.call(ledger.listSessionEvents, { sessionId, afterSeq, expand }, options)
    : client.call(ledger.listSessionMessages, { sessionId, afterSeq }, options);
}

function openWatch(
  client: LedgerClient,
  { stream, sessionId, afterSeq, expand }: ReadRequest,
  { signal, onAttached }: { readonly signal?: AbortSignal; readonly onAttached: () => void },
): AsyncGenerator<LedgerRow, void, undefined> {
  const options = signal === undefined ? { onAttached } : { signal, onAttached };
  return stream === "events"
    ? client.watch(ledger.watchSessionEvents, { sessionId, afterSeq, expand }, options)
    : client.watch(ledger.watchSessionMessages, { sessionId, afterSeq }, options);
}
