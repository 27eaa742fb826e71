/**
 * Writes both streams of a session from one source, for a runner. The agent's records are taken
 * without waiting, and sent in the background until the service has them.
 *
 *   event ──► print ──► spool ──► stream of events (or rows) ──► service
 *               └─────► derive ─► spool ──► messages, one by one ──► service
 *
 * The agent's turn pays for printing the object and for little else. All later work is done by two
 * loops (events.ts, and sendMessages in unary.ts) over the records of the book (book.ts). Each loop ends only with
 * the writer.
 */
import { systemClock } from "../../base/clock.ts";
import { Book } from "./book.ts";
import { MessageDeriver } from "../derive/derive.ts";
import { asRpcFailure, textOf } from "../failure.ts";
import { openSpoolFile } from "../spool/file.ts";
import { Connection } from "./connection.ts";
import { EventSender } from "./events.ts";
import { BackgroundDeriver, eventPayload, messageOf } from "./intake.ts";
import { checkedOptions, type CheckedOptions, TIMEOUT_MS_MAX } from "./options.ts";
import type {
  CloseResult,
  FlushResult,
  SessionWriter,
  SessionWriterOptions,
  TextOptions,
  WriterMessage,
  WriterStats,
} from "./types.ts";
import { sendMessages } from "./unary.ts";

const FLUSH_TIMEOUT_MS = 10_000;
const INVALID = "INVALID_REQUEST";

/**
 * Begins to write a session. Nothing is sent before the first record. Throws a RangeError or
 * TypeError for an invalid option; after that, no method throws or rejects.
 */
export function createSessionWriter(options: SessionWriterOptions): SessionWriter {
  return new Writer(checkedOptions(options));
}

class Writer implements SessionWriter {
  readonly #book: Book;
  readonly #options: CheckedOptions;
  readonly #deriver: BackgroundDeriver | undefined;
  readonly #connection: Connection;
  /** Resolves when the records of earlier processes are known. */
  readonly #ready = Promise.withResolvers<void>();
  /** Resolves when no loop runs. */
  readonly #running: Promise<unknown>;
  #closing: Promise<CloseResult> | undefined;

  constructor(options: CheckedOptions) {
    const { clock = systemClock, messages, lifecycleMessages: lifecycle } = options;
    this.#options = options;
    this.#book = new Book(clock, options);
    this.#deriver =
      messages === "derive"
        ? new BackgroundDeriver(new MessageDeriver({ lifecycle }), this.#book)
        : undefined;
    this.#connection = new Connection(options);
    // A defect here must not become an unhandled rejection, which would end the agent's process.
    this.#running = this.#run().catch((error: unknown) =>
      this.#book.endWith("ended", asRpcFailure(error)),
    );
  }

  get stats(): WriterStats {
    return this.#book.stats;
  }

  event(event: object | string): void {
    let payload: string;
    try {
      payload = eventPayload(event);
    } catch (error) {
      return this.#refuse("events", error);
    }
    const atMicros = this.#book.clock.nowMicros();
    this.#book.event(payload, atMicros);
    // Also for a refused or dropped event: messages are derived as long as there is room.
    if (!this.#book.hasEnded) this.#deriver?.next(payload, atMicros);
  }

  message(message: WriterMessage): void {
    let record: ReturnType<typeof messageOf>;
    try {
      record = messageOf(message);
    } catch (error) {
      return this.#refuse("messages", error);
    }
    this.#book.message(record, this.#book.clock.nowMicros());
  }

  /** Errors in the agent's own code (a getter, a toJSON) must not disturb its run either. */
  #refuse(stream: "events" | "messages", error: unknown): void {
    this.#book.refuse(stream, { reason: INVALID, message: textOf(error) });
  }

  async text(stream: AsyncIterable<string>, options: TextOptions = {}): Promise<void> {
    const { sessionId: threadId } = this.#options;
    for await (const event of eventsOfText(stream, { threadId, ...options })) this.event(event);
  }

  async flush(options?: FlushOptions): Promise<FlushResult> {
    this.#deriver?.settle();
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, flushTimeoutMs(options));
    await Promise.race([this.#ready.promise, late]);
    const complete = await this.#book.settledSoFar(late);
    clearTimeout(timer);
    const { events, messages, state } = this.stats;
    return { complete, events: events.pending, messages: messages.pending, state };
  }

  close(options?: FlushOptions): Promise<CloseResult> {
    this.#closing ??= this.#close(options);
    return this.#closing;
  }

  async #close(options: FlushOptions): Promise<CloseResult> {
    const { complete } = await this.flush(options);
    this.#book.close();
    this.#connection.renew(); // The calls in progress end normally.
    await this.#running;
    this.#book.ending.abort();
    const kept = await this.#book.closeLog();
    const { stats } = this;
    const { state } = stats;
    const left = { events: stats.events.pending, messages: stats.messages.pending };
    if (left.events + left.messages > 0) this.#book.tell({ kind: "left_behind", ...left, kept });
    return { complete, ...left, state, kept, stats };
  }

  async #run(): Promise<void> {
    const { file, sessionId } = this.#options;
    if (file !== undefined) {
      const opened = await openSpoolFile({ file, sessionId, live: this.#book.live }, (message) =>
        this.#book.tell({ kind: "file", message }),
      );
      if (opened !== undefined) this.#book.useLog(opened.log, opened.left);
    }
    this.#ready.resolve();
    const parts = { book: this.#book, connection: this.#connection, options: this.#options };
    await Promise.all([new EventSender(parts).run(), sendMessages(parts)]);
    this.#connection.renew(); // Closes the client.
  }
}

type FlushOptions = { readonly timeoutMs?: number } | undefined;

/** An invalid or absent number means the default; the function never throws. */
function flushTimeoutMs(options: FlushOptions): number {
  const timeoutMs: unknown = options?.timeoutMs;
  if (typeof timeoutMs !== "number" || Number.isNaN(timeoutMs)) return FLUSH_TIMEOUT_MS;
  return Math.min(Math.max(timeoutMs, 0), TIMEOUT_MS_MAX);
}

/** A plain stream of text, as the events of one run; when the text fails, the last event is a RUN_ERROR. */
async function* eventsOfText(
  stream: AsyncIterable<string>,
  options: TextOptions & { readonly threadId: string },
): AsyncGenerator<object, void, undefined> {
  const { threadId, role = "assistant" } = options;
  const { runId = crypto.randomUUID(), messageId = crypto.randomUUID() } = options;
  yield { type: "RUN_STARTED", threadId, runId };
  yield { type: "TEXT_MESSAGE_START", messageId, role };
  try {
    // An empty piece has no content, and older AG-UI clients refuse it.
    for await (const delta of stream) {
      if (delta !== "") yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
    }
  } catch (error) {
    yield { type: "RUN_ERROR", message: textOf(error) };
    return;
  }
  yield { type: "TEXT_MESSAGE_END", messageId };
  yield { type: "RUN_FINISHED", threadId, runId };
}
