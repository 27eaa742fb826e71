/**
 * A session as an async iterable: its stored rows, and with `follow` also new ones. After a lost
 * connection, reading continues after the last delivered number, so each row or event comes once,
 * in order. Leaving the loop, by `break` or by an error, closes the connection.
 */
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
import { createLedgerClient, type LedgerClient } from "./client.ts";
import { credentialsOf, type Tls, type TokenSource } from "./credentials.ts";
import { RpcFailure } from "./failure.ts";
import { followRows, headSeq, readRows, type ReadRequest } from "./read.ts";
import type { RetryOptions } from "./retry.ts";
import { EventItem, isEvent, type LedgerRow, MessageItem } from "./rows.ts";

interface ReadSessionOptions {
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
