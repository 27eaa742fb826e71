/**
 * Sends the events of one lane after the other: by a stream, or by unary rows where the service has
 * no stream. A stream is opened when there is something to send, and opened again after it broke.
 */
import type { Book } from "./book.ts";
import { asRpcFailure, type RpcFailure } from "../failure.ts";
import type { Retries } from "../retry.ts";
import type { Lane } from "../spool/spool.ts";
import type { Connection } from "./connection.ts";
import { fateOfStream } from "./fate.ts";
import { EventStream, type EventStreamOptions } from "./stream.ts";
import { type UnaryOptions, UnaryRows } from "./unary.ts";

export interface EventSenderOptions extends EventStreamOptions, UnaryOptions {
  readonly transport: "auto" | "stream" | "unary";
  /** True: the caller chose the epoch, and not the service. */
  readonly epochGiven: boolean;
}

export class EventSender {
  readonly #book: Book;
  readonly #connection: Connection;
  readonly #options: EventSenderOptions;
  readonly #retries: Retries;
  #replaced = 0;
  /** Opens that broke before their answer: each may still reach the service. */
  #unanswered = 0;
  #unauthenticated = 0;

  constructor(book: Book, connection: Connection, options: EventSenderOptions) {
    this.#book = book;
    this.#connection = connection;
    this.#options = options;
    this.#retries = connection.retries("events");
    book.isUnary = options.transport === "unary";
  }

  /** Resolves when the writer has ended. */
  async run(): Promise<void> {
    const book = this.#book;
    while (!book.hasEnded) {
      const { lane } = book;
      if (book.leaveLane()) continue;
      if (!this.#hasWork(lane)) {
        book.activity = "idle";
        await book.eventBell.wait();
      } else if (book.isUnary) {
        await new UnaryRows(book, lane, this.#connection, this.#options).run();
      } else {
        await this.#stream(lane);
      }
    }
  }

  /** A message also waits for the epoch, which only a stream learns. */
  #hasWork({ events, messages, epoch }: Lane): boolean {
    if (events.length > 0) return true;
    return messages.length > 0 && epoch === undefined && !this.#book.isUnary;
  }

  async #stream(lane: Lane): Promise<void> {
    this.#book.activity = "connecting";
    const stream = new EventStream(this.#book, lane, this.#options);
    try {
      await stream.run(this.#connection.client);
      this.#succeeded();
    } catch (error) {
      if (stream.hasProgressed) this.#succeeded();
      if (!stream.wasOpened) this.#unanswered += 1;
      this.#book.activity = "connecting";
      await this.#failed(lane, asRpcFailure(error));
    }
  }

  #succeeded(): void {
    this.#retries.succeeded();
    this.#replaced = 0;
    this.#unauthenticated = 0;
  }

  async #failed(lane: Lane, failure: RpcFailure): Promise<void> {
    const book = this.#book;
    if (book.hasEnded) return;
    this.#unauthenticated += failure.code === "UNAUTHENTICATED" ? 1 : 0;
    if (
      failure.reason === "STALE_EPOCH" &&
      // A writer with a higher epoch may have begun after the process that left the lane.
      !lane.isLeft &&
      lane.epoch === undefined &&
      lane.proposed !== undefined
    ) {
      // The session has seen a higher epoch: the service assigns the next one.
      lane.proposed = undefined;
      return;
    }
    const mayBeOurs = this.#unanswered > 0;
    if (failure.reason === "STREAM_REPLACED") {
      if (mayBeOurs) this.#unanswered -= 1;
      else this.#replaced += 1;
    }
    const fate = fateOfStream(failure, {
      epochGiven: this.#options.epochGiven && !mayBeOurs,
      replaced: this.#replaced,
      unauthenticated: this.#unauthenticated,
    });
    switch (fate) {
      case "again":
        if (failure.code === "DEADLINE_EXCEEDED") this.#connection.renew();
        await this.#retries.pauseAfter(failure).catch(() => undefined); // The writer has ended.
        return;
      case "renew":
        return;
      case "unary":
        return this.#useUnary(failure);
      case "fenced":
        return lane.isLeft ? book.lose(lane, failure) : book.endWith("fenced", failure);
      case "ended":
        return book.endWith("ended", failure);
    }
  }

  #useUnary(failure: RpcFailure): void {
    const { message } = failure;
    if (this.#options.transport === "stream") return this.#book.endWith("ended", failure);
    this.#book.isUnary = true;
    this.#book.tell({ kind: "no_stream", message });
    this.#book.messageBell.ring();
  }
}
