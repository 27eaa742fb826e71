/**
 * A session as an async iterable: what it holds, and with `follow` what comes. Reading goes on after
 * a lost connection from the last number that was given, so each row or event comes once, in order.
 * Whoever leaves the loop, by `break` or by an error, closes the connection with it.
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
import { EventItem, MessageItem } from "./session-item.ts";
import { credentialsOf, type Tls } from "./tls.ts";
import type { TokenSource } from "./token.ts";

export interface ReadSessionOptions {
  /** `host:port` of the service. */
  readonly address: string;
  readonly sessionId: string;
  /** Sent as `authorization: Bearer …`. A function is asked before each call and each watch. */
  readonly token?: TokenSource;
  /** True, or authorities and a certificate of one's own; default: without TLS. */
  readonly tls?: Tls;
  /** Begin behind this number, the `lastSeq` of the last item that was seen; default 0n: at the beginning. */
  readonly after?: bigint;
  /** Do not end at what the session holds now, but wait for what comes. */
  readonly follow?: boolean;
  /** Ends the reading: the loop throws an RpcFailure with the code CANCELLED. */
  readonly signal?: AbortSignal;
  /** How long the service may be out of reach before the loop throws; default 60,000. */
  readonly retryForMs?: number;
  /** Told before each pause; `count` is 1 at the first failure in a row. */
  readonly onRetry?: (failure: RpcFailure, count: number) => void;
}

export interface ReadEventsOptions extends ReadSessionOptions {
  readonly stream?: "events";
  /** Events one by one, as they were before they were merged; `after` may be any event's number. */
  readonly expand?: boolean;
}

export interface ReadMessagesOptions extends ReadSessionOptions {
  readonly stream: "messages";
}

const RETRY_FOR_MS = 60_000;
/** Of every reader. */
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
 * Throws an RpcFailure when it cannot go on: the session is not there (NOT_FOUND), `after` is above
 * its head (OUT_OF_RANGE), the caller may not read it, or the service stayed away for `retryForMs`.
 * Options that make no sense are a TypeError of the call itself.
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
    // Also where it was the pause between two attempts that the signal ended.
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
  // Up to where the session stands now: who writes faster than this reads must not keep it reading.
  const head = await headSeq(client, { sessionId, stream }, retry);
  // A cursor above the head is for the service to refuse, so it is asked.
  yield* readRows(client, after > head ? request : { ...request, untilSeq: head }, retry);
}
