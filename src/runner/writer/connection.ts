import { setTimeout as timeout } from "node:timers/promises";
import { type Book, reasonOf } from "./book.ts";
import { createLedgerClient, type LedgerClient } from "../client.ts";
import { Retries, type RetryOptions } from "../retry.ts";
import type { Tls } from "../credentials.ts";
import type { TokenSource } from "../credentials.ts";

/**
 * A writer that cannot reach the service keeps its process alive for this time after the last
 * record.
 */
const LINGER_MS = 30_000;

export interface ConnectionOptions {
  readonly address: string;
  readonly token: TokenSource | undefined;
  readonly tls: Tls | undefined;
  readonly wait: RetryOptions["wait"];
  readonly random: RetryOptions["random"];
}

/** The connection to the service: one client, replaced when its connection gets no answers. */
export class Connection {
  readonly #book: Book;
  readonly #options: ConnectionOptions;
  #client: LedgerClient | undefined;

  constructor(book: Book, options: ConnectionOptions) {
    this.#book = book;
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

  /** All resources are freed when the calls in progress have ended. */
  close(): void {
    this.renew();
  }

  /** Failures in a row have no limit of time here: only the writer's end stops the retries. */
  retries(stream: "events" | "messages"): Retries {
    const book = this.#book;
    const { wait = lingering(book), random } = this.#options;
    return new Retries({
      retryForMs: Number.POSITIVE_INFINITY,
      signal: book.ending.signal,
      clock: book.clock,
      wait,
      ...(random === undefined ? {} : { random }),
      onRetry: (failure, count) => {
        if (count === 1) book.tell({ kind: "unreachable", stream, ...reasonOf(failure) });
      },
    });
  }
}

function lingering(book: Book): NonNullable<RetryOptions["wait"]> {
  return async (pauseMs, signal) => {
    const ref = book.clock.monotonicMs() - book.lastOfferedMs < LINGER_MS;
    await timeout(pauseMs, undefined, signal === undefined ? { ref } : { ref, signal });
  };
}
