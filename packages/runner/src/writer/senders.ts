/**
 * The two loops of a writer. Messages are unary pushes, in order, each with a key, and repeated
 * until its outcome is known. Events go by streams of PushSessionEvents (stream.ts).
 */
import { ledger } from "../client.ts";
import { asRpcFailure, RpcFailure } from "../failure.ts";
import { timestampOf } from "../rows.ts";
import { type Producer, type MessageRecord, sendableMessage } from "../spool/spool.ts";
import { reasonOf } from "./writer-state.ts";
import { Attempts, outcomeOfRecord, outcomeOfStream, type SenderParts } from "./connection.ts";
import { EventPushStream } from "./stream.ts";

/** Resolves when the writer has ended. */
export async function sendMessages(parts: SenderParts): Promise<void> {
  const { shared, connection, options } = parts;
  const { sessionId, callTimeoutMs: deadlineMs } = options;
  const attempts = new Attempts(parts, "messages");
  while (!shared.hasEnded) {
    const { producer } = shared;
    const { epoch: producerEpoch } = producer;
    const record = sendableMessage(producer);
    // A message without an epoch could not be fenced; the stream of events learns the epoch.
    if (record === undefined || producerEpoch === undefined) {
      await shared.messageSignal.wait();
      continue;
    }
    const request = { sessionId, producerEpoch, ...fieldsOf(record) };
    let refusal: RpcFailure | undefined;
    try {
      const { signal } = shared.ending;
      await connection.client.call(ledger.pushSessionMessage, request, { deadlineMs, signal });
    } catch (error) {
      if (shared.hasEnded) return; // The close cut this call, so the failure is not reported.
      refusal = asRpcFailure(error);
      const outcome = outcomeOfRecord(refusal);
      if (outcome === "again") {
        await attempts.pauseAfter(refusal);
        continue;
      }
      if (outcome !== "refused") {
        attempts.succeeded(); // The service has answered.
        shared.giveUp(producer, outcome, refusal);
        continue;
      }
    }
    attempts.succeeded();
    shared.settleMessage(producer, refusal === undefined ? "committed" : "refused");
    if (refusal !== undefined) shared.reportRefused("messages", reasonOf(refusal));
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

/** Sends a producer's events in order: a stream for an event or a cancel, again after a failure. */
export class EventSender {
  readonly #parts: SenderParts;
  readonly #attempts: Attempts;
  /** Streams in a row that another call replaced. */
  #replaced = 0;
  /** Opens that broke before their answer: each may still reach the service. */
  #unanswered = 0;

  constructor(parts: SenderParts) {
    this.#parts = parts;
    this.#attempts = new Attempts(parts, "events");
  }

  /** Resolves when the writer has ended. */
  async run(): Promise<void> {
    const { shared } = this.#parts;
    while (!shared.hasEnded) {
      const { producer } = shared;
      if (shared.leaveProducer()) continue;
      // A message also waits for the epoch, which only a stream learns.
      const wantsEpoch = producer.messages.length > 0 && producer.epoch === undefined;
      if (producer.events.length === 0 && !wantsEpoch && !shared.wantsCancels(producer)) {
        shared.activity = "idle";
        await shared.eventSignal.wait();
      } else {
        await this.#stream(producer);
      }
    }
  }

  async #stream(producer: Producer): Promise<void> {
    const { shared, connection } = this.#parts;
    shared.activity = "connecting";
    const stream = new EventPushStream(this.#parts, producer);
    try {
      await stream.run(connection.client);
      this.#succeeded();
    } catch (error) {
      if (stream.hasProgressed) this.#succeeded();
      if (!stream.wasOpened) this.#unanswered += 1;
      shared.activity = "connecting";
      if (!shared.hasEnded) await this.#failed(producer, asRpcFailure(error));
    }
  }

  #succeeded(): void {
    this.#attempts.succeeded();
    this.#replaced = 0;
  }

  async #failed(producer: Producer, failure: RpcFailure): Promise<void> {
    const { shared, options } = this.#parts;
    const { code, reason, message } = failure;
    const isProposed = producer.epoch === undefined && producer.proposed !== undefined;
    // Not for a left producer: a writer with a higher epoch may have started after its process.
    if (reason === "STALE_EPOCH" && isProposed && !producer.isLeft) {
      // The session has seen a higher epoch: the service assigns the next one.
      producer.proposed = undefined;
      return;
    }
    const mayBeOurs = this.#unanswered > 0;
    if (reason === "STREAM_REPLACED") {
      if (mayBeOurs) this.#unanswered -= 1;
      else this.#replaced += 1;
    }
    const epochGiven = options.epoch !== undefined && !mayBeOurs;
    const outcome = outcomeOfStream(failure, { epochGiven, replaced: this.#replaced });
    if (outcome === "again") return this.#attempts.pauseAfter(failure);
    if (code !== "UNIMPLEMENTED") return shared.giveUp(producer, outcome, failure);
    const missing = `the server has no PushSessionEvents, which a writer needs: ${message}`;
    shared.giveUp(producer, outcome, new RpcFailure(code, missing, { cause: failure }));
  }
}
