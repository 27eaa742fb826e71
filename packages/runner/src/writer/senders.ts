/**
 * The two loops of a writer. Messages are unary pushes, one after the other, because concurrent calls
 * arrive in any order; each is repeated until its outcome is known, and has a key, so a push whose answer
 * was lost is not stored twice. Events go by streams of PushSessionEvents (stream.ts).
 */
import { ledger } from "../client.ts";
import { asRpcFailure, RpcFailure } from "../failure.ts";
import { timestampOf } from "../rows.ts";
import { type Lane, type MessageRecord, sendableMessage } from "../spool/spool.ts";
import { reasonOf } from "./book.ts";
import { Attempts, fateOfRecord, fateOfStream, type Parts } from "./connection.ts";
import { EventStream } from "./stream.ts";

/** Resolves when the writer has ended. */
export async function sendMessages(parts: Parts): Promise<void> {
  const { book, connection, options } = parts;
  const { sessionId, callTimeoutMs: deadlineMs } = options;
  const attempts = new Attempts(parts, "messages");
  while (!book.hasEnded) {
    const { lane } = book;
    const { epoch: producerEpoch } = lane;
    const record = sendableMessage(lane);
    // A message without an epoch could not be fenced; the stream of events learns the epoch.
    if (record === undefined || producerEpoch === undefined) {
      await book.messageSignal.wait();
      continue;
    }
    const request = { sessionId, producerEpoch, ...fieldsOf(record) };
    let refusal: RpcFailure | undefined;
    try {
      const { signal } = book.ending;
      await connection.client.call(ledger.pushSessionMessage, request, { deadlineMs, signal });
    } catch (error) {
      if (book.hasEnded) return; // The close cut this call, so the failure is not reported.
      refusal = asRpcFailure(error);
      const fate = fateOfRecord(refusal);
      if (fate === "again") {
        await attempts.pauseAfter(refusal);
        continue;
      }
      if (fate !== "refused") {
        attempts.succeeded(); // The service has answered.
        book.giveUp(lane, fate, refusal);
        continue;
      }
    }
    attempts.succeeded();
    book.settleMessage(lane, refusal === undefined ? "committed" : "refused");
    if (refusal !== undefined) book.tellRefused("messages", reasonOf(refusal));
  }
}

function fieldsOf({ eventType, payload, key, sentAtMicros, sender }: MessageRecord) {
  return {
    eventType,
    payload,
    idempotencyKey: key,
    ...(sentAtMicros === undefined ? {} : { sentAt: timestampOf(sentAtMicros) }),
    ...(sender === undefined ? {} : { sender }),
  };
}

/**
 * Sends the events of one lane after the other. A stream is opened when there is something to send, or
 * a cancel to hear, and opened again after it broke.
 */
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
      const wantsEpoch = lane.messages.length > 0 && lane.epoch === undefined;
      if (lane.events.length === 0 && !wantsEpoch && !book.listens(lane)) {
        book.activity = "idle";
        await book.eventSignal.wait();
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
    const { code, reason, message } = failure;
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
    if (code !== "UNIMPLEMENTED") return book.giveUp(lane, fate, failure);
    const missing = `the server has no PushSessionEvents, which a writer needs: ${message}`;
    book.giveUp(lane, fate, new RpcFailure(code, missing, { cause: failure }));
  }
}
