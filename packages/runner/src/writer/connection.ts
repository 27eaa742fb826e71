/**
 * The connection of a writer to the service, and the meaning of its failures:
 *
 *   again    it may pass: the same is sent again, later
 *   refused  this record will never be accepted; the next may be
 *   fenced   another writer took over
 *   ended    the service will take nothing of this writer
 */
import { setTimeout as timeout } from "node:timers/promises";
import { createLedgerClient, type LedgerClient } from "../client.ts";
import type { RpcCode, RpcFailure } from "../failure.ts";
import { Retries, type RetryOptions } from "../retry.ts";
import { type SharedState, reasonOf } from "./writer-state.ts";
import type { CheckedOptions } from "./options.ts";

/** The parts that every sender of a writer works with. */
export interface SenderParts {
  readonly shared: SharedState;
  readonly connection: WriterConnection;
  readonly options: CheckedOptions;
}

/** One client, replaced when its connection gets no answers. */
export class WriterConnection {
  readonly #options: CheckedOptions;
  #client: LedgerClient | undefined;

  constructor(options: CheckedOptions) {
    this.#options = options;
  }

  get client(): LedgerClient {
    const { address, token, tls } = this.#options;
    this.#client ??= createLedgerClient({ address, token, tls, ownConnection: true });
    return this.#client;
  }

  /** Calls in progress end normally; the next calls use a new connection. */
  renew(): void {
    this.#client?.close();
    this.#client = undefined;
  }
}

/** The failures in a row of one sender. Only the writer's end stops its attempts. */
export class Attempts {
  readonly stream: "events" | "messages";
  readonly #connection: WriterConnection;
  readonly #retries: Retries;
  #unauthenticated = 0;

  constructor({ shared, connection, options }: SenderParts, stream: "events" | "messages") {
    this.stream = stream;
    this.#connection = connection;
    const { wait = lingering(shared), random } = options;
    this.#retries = new Retries({
      retryForMs: Number.POSITIVE_INFINITY,
      signal: shared.ending.signal,
      clock: shared.clock,
      wait,
      ...(random === undefined ? {} : { random }),
      onRetry: (failure, count) => {
        if (count === 1) shared.report({ kind: "unreachable", stream, ...reasonOf(failure) });
      },
    });
  }

  succeeded(): void {
    this.#retries.succeeded();
    this.#unauthenticated = 0;
  }

  /** Resolves when it is time for the next attempt, or when the writer has ended. */
  async pauseAfter(failure: RpcFailure): Promise<void> {
    if (failure.code === "UNAUTHENTICATED") {
      this.#unauthenticated += 1;
      if (this.#unauthenticated === 1) return; // A new token may be accepted at once.
    }
    if (failure.code === "DEADLINE_EXCEEDED") this.#connection.renew();
    await this.#retries.pauseAfter(failure).catch(() => undefined); // The writer has ended.
  }
}

/** Without the service, a writer keeps its process alive for this time after a record. */
const LINGER_MS = 30_000;

function lingering(shared: SharedState): NonNullable<RetryOptions["wait"]> {
  return async (pauseMs, signal) => {
    const ref = shared.clock.monotonicMs() - shared.lastOfferedMs < LINGER_MS;
    await timeout(pauseMs, undefined, signal === undefined ? { ref } : { ref, signal });
  };
}

/** The number of replaced streams of one epoch in a row that proves another writer. */
const REPLACED_MAX = 3;

/**
 * For a stream that ended. `epochGiven`: the caller chose the epoch, so another writer may use it
 * too. `replaced`: the streams in a row that were replaced, this one included.
 */
export function outcomeOfStream(
  failure: RpcFailure,
  { epochGiven, replaced }: { readonly epochGiven: boolean; readonly replaced: number },
): "again" | "fenced" | "ended" {
  const { reason } = failure;
  // Our own earlier call may have arrived later. Only repeated replacements prove a rival.
  if (reason === "STREAM_REPLACED")
    return epochGiven || replaced >= REPLACED_MAX ? "fenced" : "again";
  return outcomeOfWriter(failure);
}

/** For the push of a message. */
export function outcomeOfRecord(failure: RpcFailure): "again" | "refused" | "fenced" | "ended" {
  const { code, violations } = failure;
  // A runner's token may push every type of message except that of the user.
  if (code === "PERMISSION_DENIED") return "refused";
  if (code === "INVALID_ARGUMENT")
    return violations.some(({ field }) => field === "session_id") ? "ended" : "refused";
  if (code === "ALREADY_EXISTS" || code === "OUT_OF_RANGE" || isTooLarge(failure)) return "refused";
  return outcomeOfWriter(failure);
}

/** UNKNOWN and INTERNAL are absent: proxies and resets of HTTP/2 cause them, and they pass. */
const ENDING_CODES: ReadonlySet<RpcCode> = new Set([
  "NOT_FOUND",
  "PERMISSION_DENIED",
  "FAILED_PRECONDITION",
  "INVALID_ARGUMENT",
  "UNIMPLEMENTED",
]);

/** The failures that are not about one record or one stream. */
function outcomeOfWriter({ code, reason }: RpcFailure): "again" | "fenced" | "ended" {
  if (reason === "STALE_EPOCH") return "fenced";
  return reason === "SESSION_FULL" || ENDING_CODES.has(code) ? "ended" : "again";
}

/** The service's own limit of a payload, or the transport's limit of a message. */
function isTooLarge({ code, reason, retryAfterMs, message }: RpcFailure): boolean {
  if (code !== "RESOURCE_EXHAUSTED") return false;
  if (reason === "PAYLOAD_TOO_LARGE" || reason === "REQUEST_TOO_LARGE") return true;
  // gRPC servers of any language refuse a large message with RESOURCE_EXHAUSTED, without a reason.
  return reason === undefined && retryAfterMs === undefined && /larger than max/i.test(message);
}
