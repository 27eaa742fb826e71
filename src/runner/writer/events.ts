/**
 * Sends the events of one lane after the other: by a stream, or by unary rows where the service has
 * no stream. A stream is opened when there is something to send, and opened again after it broke.
 */
import { asRpcFailure, type RpcFailure } from "../failure.ts";
import type { Lane } from "../spool/spool.ts";
import { Attempts, fateOfStream, type Parts } from "./connection.ts";
import { EventStream } from "./stream.ts";
import { UnaryRows } from "./unary.ts";

export class EventSender {
  readonly #parts: Parts;
  readonly #attempts: Attempts;
  /** Streams in a row that another call replaced. */
  #replaced = 0;
  /** Opens that broke before their answer: each may still reach the service. */
  #unanswered = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#attempts = new Attempts(parts, "events");
  }

  /** Resolves when the writer has ended. */
  async run(): Promise<void> {
    const { book } = this.#parts;
    while (!book.hasEnded) {
      const { lane } = book;
      if (book.leaveLane()) continue;
      // A message also waits for the epoch, which only a stream learns.
      const wantsEpoch = lane.messages.length > 0 && lane.epoch === undefined && !book.isUnary;
      if (lane.events.length === 0 && !wantsEpoch) {
        book.activity = "idle";
        await book.eventBell.wait();
      } else if (book.isUnary) {
        await new UnaryRows(this.#parts, lane).run();
      } else {
        await this.#stream(lane);
      }
    }
  }

  async #stream(lane: Lane): Promise<void> {
    const { book, connection } = this.#parts;
    book.activity = "connecting";
    const stream = new EventStream(this.#parts, lane);
    try {
      await stream.run(connection.client);
      this.#succeeded();
    } catch (error) {
      if (stream.hasProgressed) this.#succeeded();
      if (!stream.wasOpened) this.#unanswered += 1;
      book.activity = "connecting";
      if (!book.hasEnded) await this.#failed(lane, asRpcFailure(error));
    }
  }

  #succeeded(): void {
    this.#attempts.succeeded();
    this.#replaced = 0;
  }

  async #failed(lane: Lane, failure: RpcFailure): Promise<void> {
    const { book, options } = this.#parts;
    const { reason, message } = failure;
    const isProposed = lane.epoch === undefined && lane.proposed !== undefined;
    // Not in a left lane: a writer with a higher epoch may have begun after its process.
    if (reason === "STALE_EPOCH" && isProposed && !lane.isLeft) {
      // The session has seen a higher epoch: the service assigns the next one.
      lane.proposed = undefined;
      return;
    }
    const mayBeOurs = this.#unanswered > 0;
    if (reason === "STREAM_REPLACED") {
      if (mayBeOurs) this.#unanswered -= 1;
      else this.#replaced += 1;
    }
    const epochGiven = options.epoch !== undefined && !mayBeOurs;
    const fate = fateOfStream(failure, { epochGiven, replaced: this.#replaced });
    if (fate === "again") return this.#attempts.pauseAfter(failure);
    if (fate !== "unary") return book.giveUp(lane, fate, failure);
    if (options.transport === "stream") return book.giveUp(lane, "ended", failure);
    book.isUnary = true;
    book.tell({ kind: "no_stream", message });
    book.messageBell.ring();
  }
}
