/**
 * A session as an async iterable: its stored rows, and with `follow` also new ones. After a lost
 * connection, reading continues after the last delivered number, so each row or event comes once,
 * in order. Leaving the loop, by `break` or by an error, closes the connection.
 */
import {
  checkAddress,
  checkObject,
  checkOneOf,
  checkTls,
  checkToken,
  checkType,
} from "./checks.ts";
import { createLedgerClient, type LedgerClient } from "./client.ts";
import { RpcFailure } from "./failure.ts";
import { followRows, headSeq, readRows, type ReadRequest } from "./read.ts";
import type { RetryOptions } from "./retry.ts";
import { isEvent, type LedgerRow } from "./rows.ts";
import { EventItem, MessageItem } from "./rows.ts";
import { credentialsOf, type Tls } from "./credentials.ts";
import type { TokenSource } from "./credentials.ts";

export interface ReadSessionOptions {
  /** `host:port` of the service. */
  readonly address: string;
  readonly sessionId: string;
  /** Sent as `authorization: Bearer …`. A function is called before each call and each watch. */
  readonly token?: TokenSource;
  /** True, or your own authorities and certificate; default: without TLS. */
  readonly tls?: Tls;
  /**
   * Begins after this number, the `lastSeq` of the last known item; default 0n: from the beginning.
   */
  readonly after?: bigint;
  /** True: wait for new rows after the stored ones, instead of ending. */
  readonly follow?: boolean;
  /** An abort ends the reading: the loop throws an RpcFailure with the code CANCELLED. */
  readonly signal?: AbortSignal;
  /**
   * The longest time that the service may be unreachable before the loop throws; default 60,000.
   */
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

const RETRY_FOR_MS = 60_000;
/** The options of every reader. */
const KNOWN: Readonly<Record<keyof ReadSessionOptions | "stream", true>> = {
  address: true,
  sessionId: true,
  stream: true,
  token: true,
  tls: true,
  after: true,
  follow: true,
  signal: true,
  retryForMs: true,
  onRetry: true,
};

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
  checkOptions(options);
  return itemsOf(options);
}

function checkOptions(options: ReadEventsOptions | ReadMessagesOptions): void {
  checkObject("options", options, [...Object.keys(KNOWN), "expand"]);
  checkOneOf("stream", options.stream, ["events", "messages"]);
  const expand: unknown = "expand" in options ? options.expand : undefined;
  checkType("expand", expand, "boolean");
  if (options.stream === "messages" && expand === true)
    throw new TypeError("expand is of events: messages are never merged");
  checkAddress(options.address);
  if (typeof options.sessionId !== "string") throw new TypeError("sessionId must be a string");
  checkToken(options.token);
  checkTls(options.tls);
  credentialsOf(options.tls);
  checkType("after", options.after, "bigint");
  checkType("follow", options.follow, "boolean");
  checkType("onRetry", options.onRetry, "function");
  const { retryForMs = RETRY_FOR_MS } = options;
  if (typeof retryForMs !== "number" || Number.isNaN(retryForMs))
    throw new TypeError("retryForMs must be a number of milliseconds");
}

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
  const { signal, retryForMs = RETRY_FOR_MS, onRetry } = options;
  const { expand = false } = "expand" in options ? options : {};
  const request: ReadRequest = { sessionId, stream, afterSeq: after, expand };
  const retry: RetryOptions = {
    retryForMs,
    ...(signal && { signal }),
    ...(onRetry && { onRetry }),
  };
  if (follow) return yield* followRows(client, request, retry);
  // Up to the current head of the session: a writer faster than this reader must not keep it
  // reading.
  const head = await headSeq(client, { sessionId, stream }, retry);
  // The service refuses a cursor above the head, so the request is sent to it.
  yield* readRows(client, after > head ? request : { ...request, untilSeq: head }, retry);
}
