/**
 * Unary pushes, one after the other, because concurrent calls arrive in any order. Each is repeated
 * until its outcome is known, and has a key, so a push whose answer was lost is not stored twice.
 *
 * Messages are always pushed like this. Events are when the service has no PushSessionEvents: they
 * are compressed here, and pushed row by row. The fields include those that upstream's runners
 * send, a row with its count and its end. A service that knows only those skips ours; then a row
 * whose answer was lost may be stored twice.
 */
import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import {
  FragmentsSchema,
  type PushSessionEventRequestSchema,
} from "../../../gen/ambient/v1/events_pb.ts";
import { isObject, parseJson } from "../../agui/json.ts";
import { type CompressedRow, Compressor, type IncomingEvent } from "../../compressor/compressor.ts";
import { encodeFragments } from "../../compressor/fragments.ts";
import { ledger, type LedgerClient } from "../client.ts";
import { asRpcFailure, type RpcFailure } from "../failure.ts";
import { lastSeqOf, timestampOf } from "../rows.ts";
import { type Lane, type MessageRecord, sendableMessage, sendableUpTo } from "../spool/spool.ts";
import { reasonOf } from "./book.ts";
import { Attempts, fateOfRecord, fateOfStream, type Parts } from "./connection.ts";
import { EventStream } from "./stream.ts";

/** Resolves when the writer has ended. */
export async function sendMessages(parts: Parts): Promise<void> {
  const { book } = parts;
  const attempts = new Attempts(parts, "messages");
  while (!book.hasEnded) {
    const { lane } = book;
    const record = sendableMessage(lane);
    // A message without an epoch could not be fenced; the stream of events learns the epoch.
    const isReady = book.isUnary || lane.epoch !== undefined;
    if (record === undefined || !isReady) {
      await book.messageSignal.wait();
      continue;
    }
    const request = { ...fieldsOf(record), ...ownerOf(parts, lane) };
    const pushed = await push(parts, { lane, attempts }, (client, options) =>
      client.call(ledger.pushSessionMessage, request, options),
    );
    if (pushed === undefined) continue;
    book.settleMessage(lane, pushed.kind);
    if (pushed.kind === "refused") book.tellRefused("messages", reasonOf(pushed.failure));
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

function ownerOf({ options }: Parts, { epoch }: Lane) {
  const { sessionId } = options;
  return epoch === undefined ? { sessionId } : { sessionId, producerEpoch: epoch };
}

type Pushed<T> =
  | { readonly kind: "committed"; readonly answer: T }
  | { readonly kind: "refused"; readonly failure: RpcFailure }
  /** The lane was given up, or the writer was closed and the outcome is unknown. */
  | undefined;

async function push<T>(
  { book, connection, options }: Parts,
  { lane, attempts }: { readonly lane: Lane; readonly attempts: Attempts },
  attempt: (
    client: LedgerClient,
    options: { readonly deadlineMs: number; readonly signal: AbortSignal },
  ) => Promise<T>,
): Promise<Pushed<T>> {
  const limits = { deadlineMs: options.callTimeoutMs, signal: book.ending.signal };
  while (!book.hasEnded) {
    try {
      const answer = await attempt(connection.client, limits);
      attempts.succeeded();
      return { kind: "committed", answer };
    } catch (error) {
      if (book.hasEnded) break; // The close cut this call, so the failure is not reported.
      const failure = asRpcFailure(error);
      const fate = fateOfRecord(failure, attempts.stream);
      if (fate === "again") {
        await attempts.pauseAfter(failure);
        continue;
      }
      attempts.succeeded(); // The service has answered.
      if (fate === "refused") return { kind: "refused", failure };
      book.giveUp(lane, fate, failure);
      break;
    }
  }
  return undefined;
}

interface NumberedEvent extends IncomingEvent {
  readonly number: bigint;
}

type Row = CompressedRow<NumberedEvent>;

const NO_TYPE = { reason: "INVALID_REQUEST", message: "it is not a JSON object with a type" };

class UnaryRows {
  readonly #parts: Parts;
  readonly #lane: Lane;
  readonly #attempts: Attempts;
  readonly #compressor: Compressor<NumberedEvent>;
  readonly #rows: Row[] = [];
  readonly #beganMs: number;
  /** The number of the last event that the compressor got. */
  #taken: bigint;

  constructor(parts: Parts, lane: Lane) {
    this.#parts = parts;
    this.#lane = lane;
    this.#attempts = new Attempts(parts, "events");
    const { maxAgeMs, textBytesMax } = parts.options;
    this.#compressor = new Compressor({ maxAgeMs, textBytesMax });
    this.#taken = lane.events.frontNumber - 1n;
    this.#beganMs = parts.book.clock.monotonicMs();
  }

  /** Resolves when a left lane has no more events, or when the writer has ended. */
  async run(): Promise<void> {
    const { book } = this.#parts;
    const lane = this.#lane;
    book.activity = "unary";
    while (!book.hasEnded && !(lane.isLeft && lane.events.length === 0)) {
      const row = this.#rows.shift();
      if (row !== undefined) await this.#push(row);
      else if (!this.#take() && !this.#close()) {
        const { dueAtMs } = this.#compressor;
        const timeoutMs = dueAtMs === undefined ? undefined : dueAtMs - book.clock.monotonicMs();
        await book.eventSignal.wait(timeoutMs);
      }
    }
  }

  /** Passes the next event to the compressor; false when there is none. */
  #take(): boolean {
    const { book, options } = this.#parts;
    const { events, isLeft, cut } = this.#lane;
    const number = this.#taken + 1n;
    const record = number <= sendableUpTo(this.#lane) ? events.at(number) : undefined;
    if (record === undefined) return false;
    this.#taken = number;
    const event = {
      number,
      eventType: typeOf(record.payload),
      payload: record.payload,
      createdAtMicros: record.atMicros,
      merges: options.merges,
    };
    // The row that an ended process pushed may be stored, and must be repeated unchanged: it ends
    // where the process had cut it, and its age does not cut it again.
    const isAgain = isLeft && cut !== undefined && number <= cut.last;
    const nowMs = isAgain ? this.#beganMs : book.clock.monotonicMs();
    this.#rows.push(...this.#compressor.push(event, nowMs));
    if (isAgain && number === cut.last) this.#flush();
    return true;
  }

  #flush(): boolean {
    const row = this.#compressor.flush();
    if (row !== undefined) this.#rows.push(row);
    return row !== undefined;
  }

  /** Closes the open row when it is due, or on request; false when there was nothing to close. */
  #close(): boolean {
    const { book } = this.#parts;
    const { dueAtMs } = this.#compressor;
    if (dueAtMs === undefined) return false;
    const isDue = dueAtMs <= book.clock.monotonicMs();
    return (isDue || book.wantsFlush(this.#lane)) && this.#flush();
  }

  async #push(row: Row): Promise<void> {
    if (row.eventType === "") return this.#refuse(row, NO_TYPE);
    const { book } = this.#parts;
    const lane = this.#lane;
    lane.cut = { first: row.first.number, last: row.last.number };
    await book.lanesWritten();
    const request = { ...this.#fieldsOf(row), ...ownerOf(this.#parts, lane) };
    const pushed = await push(this.#parts, { lane, attempts: this.#attempts }, (client, options) =>
      client.call(ledger.pushSessionEvent, request, options),
    );
    if (pushed === undefined) return;
    if (pushed.kind === "refused") return this.#refuse(row, reasonOf(pushed.failure));
    book.lastSeq = lastSeqOf(pushed.answer);
    book.settleEvents(lane, row.last.number, { refused: 0 });
  }

  /** Only single events can show which event of the row is at fault. */
  #refuse(row: Row, reason: ReturnType<typeof reasonOf>): void {
    if (row.eventCount > 1) {
      this.#rows.unshift(...this.#eachOf(row));
      return;
    }
    this.#parts.book.tellRefused("events", reason);
    this.#parts.book.settleEvents(this.#lane, row.last.number, { refused: 1 });
  }

  #eachOf({ first, last, eventType }: Row): readonly Row[] {
    const rows: Row[] = [];
    for (let number = first.number; number <= last.number; number += 1n) {
      const record = this.#lane.events.at(number);
      if (record === undefined) continue;
      const { payload, atMicros: createdAtMicros } = record;
      const event = { number, eventType, payload, createdAtMicros };
      const single = { eventCount: 1, completedAtMicros: undefined, fragments: undefined };
      rows.push({ ...single, eventType, payload, createdAtMicros, first: event, last: event });
    }
    return rows;
  }

  #fieldsOf(row: Row): MessageInitShape<typeof PushSessionEventRequestSchema> {
    const { eventType, payload, eventCount, completedAtMicros, fragments } = row;
    return {
      eventType,
      payload,
      eventCount,
      createdAt: timestampOf(row.createdAtMicros),
      idempotencyKey: `${this.#lane.start}:${row.first.number}`,
      ...(completedAtMicros === undefined ? {} : { completedAt: timestampOf(completedAtMicros) }),
      ...(fragments === undefined
        ? {}
        : { fragments: fromBinary(FragmentsSchema, encodeFragments(fragments)) }),
    };
  }
}

/** Nearly all events have the type first, and then no parsing is needed. */
const TYPE_FIRST = /^\{"type":"([A-Z0-9_]+)"/;

export function typeOf(payload: string): string {
  const first = TYPE_FIRST.exec(payload)?.[1];
  if (first !== undefined) return first;
  const value = parseJson(payload);
  return isObject(value) && typeof value["type"] === "string" ? value["type"] : "";
}

/**
 * Sends the events of one lane after the other: by a stream, or by unary rows where the service has
 * no stream. A stream is opened when there is something to send, or a cancel to hear, and opened
 * again after it broke.
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
      const wantsEpoch = lane.messages.length > 0 && lane.epoch === undefined && !book.isUnary;
      if (lane.events.length === 0 && !wantsEpoch && !book.listens(lane)) {
        book.activity = "idle";
        await book.eventSignal.wait();
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
    book.messageSignal.set();
  }
}
