/**
 * Events as rows, for a service without PushSessionEvents: compressed here, and pushed one row
 * after the other. The fields include those that upstream's runners send, a row with its count and
 * its end. A service that knows only those skips ours; then a row whose answer was lost may be
 * stored twice.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PushSessionEventRequestSchema } from "../../../gen/ambient/v1/events_pb.ts";
import { isObject } from "../../agui/json.ts";
import { Compressor } from "../../compressor/compressor.ts";
import type { CompressedRow, IncomingEvent } from "../../compressor/group.ts";
import { type Book, reasonOf } from "./book.ts";
import { ledger } from "../client.ts";
import type { RpcFailure } from "../failure.ts";
import { lastSeqOf } from "../rows.ts";
import type { Lane } from "../spool/spool.ts";
import { timestampOf } from "../rows.ts";
import type { Connection } from "./connection.ts";
import { Pusher } from "./push.ts";

interface NumberedEvent extends IncomingEvent {
  readonly number: bigint;
}

type Row = CompressedRow<NumberedEvent>;

export interface UnaryOptions {
  readonly sessionId: string;
  readonly maxAgeMs: number;
  readonly textBytesMax: number;
  readonly merges: boolean;
  readonly callTimeoutMs: number;
}

export class UnaryRows {
  readonly #book: Book;
  readonly #lane: Lane;
  readonly #options: UnaryOptions;
  readonly #pusher: Pusher;
  readonly #compressor: Compressor<NumberedEvent>;
  readonly #rows: Row[] = [];
  readonly #beganMs: number;
  /** The number of the last event that the compressor got. */
  #taken: bigint;

  constructor(book: Book, lane: Lane, connection: Connection, options: UnaryOptions) {
    const { maxAgeMs, textBytesMax } = options;
    this.#book = book;
    this.#lane = lane;
    this.#options = options;
    this.#pusher = new Pusher(book, connection, "events");
    this.#compressor = new Compressor({ maxAgeMs, textBytesMax });
    this.#taken = lane.events.frontNumber - 1n;
    this.#beganMs = book.clock.monotonicMs();
  }

  /** Resolves when a left lane has no more events, or when the writer has ended. */
  async run(): Promise<void> {
    const book = this.#book;
    book.activity = "unary";
    while (!book.hasEnded) {
      const row = this.#rows.shift();
      if (row !== undefined) await this.#push(row);
      else if (!this.#take() && !this.#close()) {
        if (this.#lane.isLeft) return;
        const dueAtMs = this.#compressor.dueAtMs;
        const timeoutMs = dueAtMs === undefined ? undefined : dueAtMs - book.clock.monotonicMs();
        await book.eventBell.wait({ timeoutMs });
      }
    }
  }

  /** Passes the next event to the compressor; false when there is none. */
  #take(): boolean {
    const number = this.#taken + 1n;
    const record = this.#lane.events.at(number);
    if (record === undefined) return false;
    this.#taken = number;
    const event = {
      number,
      eventType: typeOf(record.payload),
      payload: record.payload,
      createdAtMicros: record.atMicros,
      merges: this.#options.merges,
    };
    this.#rows.push(...this.#compressor.push(event, this.#nowMs()));
    if (this.#isCut(number)) this.#flush();
    return true;
  }

  /** True where an ended process had cut: its row may be stored, and must be repeated unchanged. */
  #isCut(number: bigint): boolean {
    return this.#lane.isLeft && this.#lane.cut?.last === number;
  }

  #nowMs(): number {
    const isAgain = this.#lane.isLeft && this.#taken <= (this.#lane.cut?.last ?? 0n);
    // Age must not cut the repeated row again.
    return isAgain ? this.#beganMs : this.#book.clock.monotonicMs();
  }

  #flush(): boolean {
    const row = this.#compressor.flush();
    if (row !== undefined) this.#rows.push(row);
    return row !== undefined;
  }

  /** Closes the open row when it is due, or on request; false when there was nothing to close. */
  #close(): boolean {
    const { dueAtMs } = this.#compressor;
    if (dueAtMs === undefined) return false;
    const isDue = dueAtMs <= this.#book.clock.monotonicMs();
    if (!isDue && !this.#book.wantsFlush(this.#lane)) return false;
    return this.#flush();
  }

  async #push(row: Row): Promise<void> {
    if (row.eventType === "") return this.#refuse(row, NO_TYPE);
    const { signal } = this.#book.ending;
    const options = { deadlineMs: this.#options.callTimeoutMs, signal };
    this.#lane.cut = { first: row.first.number, last: row.last.number };
    await this.#book.lanesWritten();
    const request = this.#requestOf(row);
    const pushed = await this.#pusher.push((client) =>
      client.call(ledger.pushSessionEvent, request, options),
    );
    const book = this.#book;
    switch (pushed.kind) {
      case "committed":
        book.lastSeq = lastSeqOf(pushed.answer);
        return book.settleEvents(this.#lane, row.last.number, { refused: 0 });
      case "refused":
        return this.#refuse(row, reasonOf(pushed.failure));
      case "fenced":
      case "ended":
        return this.#end(pushed.kind, pushed.failure);
      case "stopped":
    }
  }

  #end(kind: "fenced" | "ended", failure: RpcFailure): void {
    if (kind === "ended" || !this.#lane.isLeft) return this.#book.endWith(kind, failure);
    this.#rows.length = 0;
    this.#compressor.flush();
    this.#book.lose(this.#lane, failure);
  }

  /** Only single events can show which event of the row is at fault. */
  #refuse(row: Row, reason: ReturnType<typeof reasonOf>): void {
    if (row.eventCount > 1) {
      this.#rows.unshift(...this.#eachOf(row));
      return;
    }
    this.#book.tell({ kind: "refused", stream: "events", count: 1, ...reason });
    this.#book.settleEvents(this.#lane, row.last.number, { refused: 1 });
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

  #requestOf(row: Row): MessageInitShape<typeof PushSessionEventRequestSchema> {
    const { epoch, start } = this.#lane;
    const { completedAtMicros, fragments } = row;
    return {
      sessionId: this.#options.sessionId,
      eventType: row.eventType,
      payload: row.payload,
      eventCount: row.eventCount,
      createdAt: timestampOf(row.createdAtMicros),
      idempotencyKey: `${start}:${row.first.number}`,
      ...(epoch === undefined ? {} : { producerEpoch: epoch }),
      ...(completedAtMicros === undefined ? {} : { completedAt: timestampOf(completedAtMicros) }),
      ...(fragments === undefined
        ? {}
        : {
            fragments: {
              lengths: [...fragments.lengths],
              timestampDeltasMs: [...fragments.timestampDeltasMs],
            },
          }),
    };
  }
}

const NO_TYPE = { reason: "INVALID_REQUEST", message: "it is no JSON object with a type" };

/** Nearly all events have the type first, and then no parsing is needed. */
const TYPE_FIRST = /^\{"type":"([A-Z0-9_]+)"/;

function typeOf(payload: string): string {
  const first = TYPE_FIRST.exec(payload)?.[1];
  if (first !== undefined) return first;
  try {
    const value: unknown = JSON.parse(payload);
    const type = isObject(value) ? value["type"] : undefined;
    return typeof type === "string" ? type : "";
  } catch {
    return "";
  }
}
