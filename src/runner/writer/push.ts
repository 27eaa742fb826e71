import type { Book } from "./book.ts";
import type { LedgerClient } from "../client.ts";
import { asRpcFailure, type RpcFailure } from "../failure.ts";
import type { Retries } from "../retry.ts";
import type { Connection } from "./connection.ts";
import { fateOfRecord } from "./fate.ts";

export type Pushed<T> =
  | { readonly kind: "committed"; readonly answer: T }
  | { readonly kind: "refused" | "fenced" | "ended"; readonly failure: RpcFailure }
  /** The writer was closed meanwhile; the outcome of the record is unknown. */
  | { readonly kind: "stopped" };

/** Unary pushes one after the other; each is repeated until its outcome is known. */
export class Pusher {
  readonly #book: Book;
  readonly #connection: Connection;
  readonly #stream: "events" | "messages";
  readonly #retries: Retries;
  #unauthenticated = 0;

  constructor(book: Book, connection: Connection, stream: "events" | "messages") {
    this.#book = book;
    this.#connection = connection;
    this.#stream = stream;
    this.#retries = connection.retries(stream);
  }

  async push<T>(attempt: (client: LedgerClient) => Promise<T>): Promise<Pushed<T>> {
    while (!this.#book.hasEnded) {
      try {
        const answer = await attempt(this.#connection.client);
        this.#answered();
        return { kind: "committed", answer };
      } catch (error) {
        if (this.#book.hasEnded) break; // The close cut this call, so the failure is not reported.
        const failure = asRpcFailure(error);
        this.#unauthenticated += failure.code === "UNAUTHENTICATED" ? 1 : 0;
        const unauthenticated = this.#unauthenticated;
        const stream = this.#stream;
        const fate = fateOfRecord(failure, { replaced: 0, unauthenticated, stream });
        if (fate === "again") await this.#pauseAfter(failure);
        else if (fate !== "renew") {
          this.#answered();
          return { kind: fate, failure };
        }
      }
    }
    return { kind: "stopped" };
  }

  #answered(): void {
    this.#retries.succeeded();
    this.#unauthenticated = 0;
  }

  async #pauseAfter(failure: RpcFailure): Promise<void> {
    if (failure.code === "DEADLINE_EXCEEDED") this.#connection.renew();
    // Rejects when the writer ends, which the loop above checks itself.
    await this.#retries.pauseAfter(failure).catch(() => undefined);
  }
}
