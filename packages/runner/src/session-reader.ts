/**
 * A session as an async iterable: its stored rows, and with `follow` also new ones. After a lost
 * connection, reading continues after the last delivered number, so each row or event comes once,
 * in order. Leaving the loop, by `break` or by an error, closes the connection.
 */
import { systemClock } from "@session-ledger/base/clock";
import {
  checkAddress,
  checkOptions,
  type Checks,
  checkTls,
  checkToken,
  ofType,
  oneOf,
  unchecked,
} from "./checks.ts";
import { createLedgerClient, ledger, type LedgerClient } from "./client.ts";
import { credentialsOf, type Tls, type TokenSource } from "./credentials.ts";
import { RpcFailure } from "./failure.ts";
import { Retries, type RetryOptions } from "./retry.ts";
import {
  EventItem,
  isEvent,
  lastSeqOf,
  type LedgerRow,
  MessageItem,
  type StreamName,
} from "./rows.ts";

interface ReadSessionOptions {
  /** `host:port` of the service. */
  readonly address: string;
  readonly sessionId: string;
  /** Sent as `authorization: Bearer …`. A function is called before each call and each watch. */
  readonly token?: TokenSource;
  /** True, or your own authorities and certificate; default: without TLS. */
  readonly tls?: Tls;
  /** Begins after this number, the `lastSeq` of the last known item; default 0n: all. */
  readonly after?: bigint;
  /** True: wait for new rows after the stored ones, instead of ending. */
  readonly follow?: boolean;
  /** An abort ends the reading: the loop throws an RpcFailure with the code CANCELLED. */
  readonly signal?: AbortSignal;
  /** The longest time that the service may be away before the loop throws; default 60,000. */
  readonly retryForMs?: number;
  /** Called before each pause; `count` is 1 at the first failure in a row. */
  readonly onRetry?: (failure: RpcFailure, count: number) => void;
}

export interface ReadEventsOptions extends ReadSessionOptions {
  readonly stream?: "events";
  /** Single events, as they were before they were merged; `after` may be any event's number. */
  readonly expand?: boolean;
}

export interface ReadMessagesOptions extends ReadSessionOptions {
  readonly stream: "messages";
}

/**
 * Throws an RpcFailure when it cannot continue: the session does not exist (NOT_FOUND), `after` is
 * above its head (OUT_OF_RANGE), the caller may not read it, or the service was unreachable for
 * `retryForMs`. The call itself throws a TypeError for invalid options.
 */
export function readSession(options: ReadEventsOptions): AsyncGenerator<EventItem, void, undefined>;
export function readSession(
  options: ReadMessagesOptions,
): AsyncGenerator<MessageItem, void, undefined>;
export function readSession(
  options: ReadEventsOptions | ReadMessagesOptions,
): AsyncGenerator<EventItem | MessageItem, void, undefined> {
  checkOptions("options", options, CHECKS);
  if (options.stream === "messages" && "expand" in options && options.expand === true)
    throw new TypeError("expand is only for events: messages are never merged");
  credentialsOf(options.tls); // Invalid PEM is reported now, and not by the loop.
  return itemsOf(options);
}

const CHECKS: Checks<ReadEventsOptions> = {
  address: checkAddress,
  // The service decides which ids are valid.
  sessionId: (name, value) => {
    if (typeof value !== "string") throw new TypeError(`${name} must be a string`);
  },
  stream: oneOf("events", "messages"),
  token: checkToken,
  tls: checkTls,
  after: ofType("bigint"),
  follow: ofType("boolean"),
  signal: unchecked,
  retryForMs: (name, value) => {
    if (value !== undefined && (typeof value !== "number" || Number.isNaN(value)))
      throw new TypeError(`${name} must be a number of milliseconds`);
  },
  onRetry: ofType("function"),
  expand: ofType("boolean"),
};

async function* itemsOf(
  options: ReadEventsOptions | ReadMessagesOptions,
): AsyncGenerator<EventItem | MessageItem, void, undefined> {
  const { address, token, tls, signal } = options;
  const client = createLedgerClient({ address, token, tls });
  try {
    for await (const row of rowsOf(client, options)) {
      if (signal?.aborted === true) break;
      yield isEvent(row) ? new EventItem(row) : new MessageItem(row);
    }
    signal?.throwIfAborted();
  } catch (error) {
    if (signal?.aborted !== true) throw error;
    // The same when the signal ended the pause between two attempts.
    throw new RpcFailure("CANCELLED", "the reading was aborted", { cause: signal.reason });
  } finally {
    client.close();
  }
}

async function* rowsOf(
  client: LedgerClient,
  options: ReadEventsOptions | ReadMessagesOptions,
): AsyncGenerator<LedgerRow, void, undefined> {
  const { sessionId, stream = "events", after = 0n, follow = false } = options;
  const { signal, retryForMs = 60_000, onRetry } = options;
  const { expand = false } = "expand" in options ? options : {};
  const request: ReaderRequest = { sessionId, stream, afterSeq: after, expand };
  const retry: RetryOptions = {
    retryForMs,
    ...(signal && { signal }),
    ...(onRetry && { onRetry }),
  };
  if (follow) return yield* followRows(client, request, retry);
  // Up to the current head: a writer faster than this reader must not keep it reading.
  const head = await headSeq(client, { sessionId, stream }, retry);
  // The service refuses a cursor above the head, so the request is sent to it.
  yield* readRows(client, after > head ? request : { ...request, untilSeq: head }, retry);
}

/** Reads a session: its pages, and a watch that survives lost connections. */

interface ReaderRequest {
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
  { stream, sessionId }: Pick<ReaderRequest, "stream" | "sessionId">,
  options: RetryOptions,
): Promise<bigint> {
  const newest = { sessionId, descending: true, pageSize: 1 };
  const { items } = await listRows(client, { stream, ...newest }, options);
  return items[0] === undefined ? 0n : lastSeqOf(items[0]);
}

/** The session's current rows, or those up to a number, page by page, and then the end. */
export async function* readRows(
  client: LedgerClient,
  { afterSeq, untilSeq, ...request }: ReaderRequest & { readonly untilSeq?: bigint },
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
  { stream, sessionId, afterSeq, expand = false }: ReaderRequest,
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
interface ReaderPageRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly pageSize: number;
  readonly afterSeq?: bigint;
  readonly descending?: boolean;
  readonly expand?: boolean;
}

/** Repeated while the service does not answer: a read may always be repeated. */
function listRows(
  client: LedgerClient,
  { stream, expand = false, ...request }: ReaderPageRequest,
  options: RetryOptions,
) {
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

/** A watch that was open this long worked; a shorter one counts as one more failure. */
const STEADY_MS = 5_000;

/** Each row after the cursor once, in order, also through restarts of the service. */
export async function* resume<Row>(
  { open, afterSeq, cursorOf }: Resumable<Row>,
  options: RetryOptions,
): AsyncGenerator<Row, void, undefined> {
  let cursor = afterSeq;
  yield* reopening(async function* (onAttached) {
    for await (const row of open(cursor, onAttached)) {
      const next = cursorOf(row);
      // A cursor inside of a merged row makes that row come again.
      if (next <= cursor) continue;
      cursor = next;
      yield row;
    }
  }, options);
}

/**
 * One endless watch over several connections. One that ends without a failure was ended by a proxy,
 * and is opened again, like one that failed or whose token expired. Failures that do not pass with
 * time (no such session, a refused token) go to the caller.
 */
export async function* reopening<Row>(
  open: (onAttached: () => void) => AsyncGenerator<Row, void, undefined>,
  options: RetryOptions,
): AsyncGenerator<Row, void, undefined> {
  const { clock = systemClock } = options;
  const retries = new Retries(options);
  for (;;) {
    let attachedMs: number | undefined;
    try {
      for await (const row of open(() => (attachedMs = clock.monotonicMs()))) {
        retries.succeeded();
        yield row;
      }
      throw new RpcFailure("UNAVAILABLE", "the watch ended");
    } catch (error) {
      if (!(error instanceof RpcFailure)) throw error;
      // A token that was accepted has ended since; its source may have another one by now.
      const isOver = error.code === "UNAUTHENTICATED" && attachedMs !== undefined;
      if (!(retries.mayRepeat(error) || isOver)) throw error;
      if (attachedMs !== undefined && clock.monotonicMs() - attachedMs >= STEADY_MS)
        retries.succeeded();
      await retries.pauseAfter(error);
    }
  }
}
