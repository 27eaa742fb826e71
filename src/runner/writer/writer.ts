/**
 * Both streams of a session from one source, for a runner: what the agent emits goes in without ever
 * waiting, and is sent in the background until the service has it.
 *
 *   event ──► print ──► spool ──► stream of events (or rows) ──► service
 *               └─────► derive ─► spool ──► messages, one by one ──► service
 *
 * The agent's turn pays for printing the object and for little else. Everything after that is two
 * loops (events.ts, messages.ts) over what the book holds (book.ts), each of which ends
 * only when the writer does.
 */
import { systemClock } from "../../base/clock.ts";
import { Book } from "./book.ts";
import { MessageDeriver } from "../derive/derive.ts";
import { asRpcFailure } from "../failure.ts";
import { openSpoolFile } from "../spool/file.ts";
import { Connection } from "./connection.ts";
import { BackgroundDeriver } from "./derive.ts";
import { EventSender } from "./events.ts";
import { sendMessages } from "./messages.ts";
import { checkedOptions, type CheckedOptions } from "./options.ts";
import { eventsOfText } from "./text.ts";
import type {
  CloseResult,
  FlushResult,
  SessionWriter,
  SessionWriterOptions,
  TextOptions,
  WriterMessage,
  WriterStats,
} from "./types.ts";

/** A request has at most 4 MiB, and a payload is not all of it. */
const PAYLOAD_BYTES_MAX = 3.5 * 1024 * 1024;
const FLUSH_TIMEOUT_MS = 10_000;
const MICROS_PER_MS = 1_000n;
const INVALID = "INVALID_REQUEST";

/**
 * Begins to write a session. Nothing is sent before there is something to send. Throws a RangeError or
 * TypeError when an option makes no sense; from then on nothing of it throws or rejects.
 */
export function createSessionWriter(options: SessionWriterOptions): SessionWriter {
  return new Writer(checkedOptions(options));
}

class Writer implements SessionWriter {
  readonly #book: Book;
  readonly #options: CheckedOptions;
  readonly #deriver: BackgroundDeriver | undefined;
  readonly #connection: Connection;
  /** Resolves when it is known what an earlier process left. */
  readonly #ready = Promise.withResolvers<void>();
  /** Resolves when no loop of it runs. */
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
    this.#connection = new Connection(this.#book, options);
    // A defect in here must not become an unhandled rejection, which ends the agent's process.
    this.#running = this.#run().catch((error: unknown) =>
      this.#book.endWith("ended", asRpcFailure(error)),
    );
  }

  get stats(): WriterStats {
    return this.#book.stats;
  }

  event(event: object | string): void {
    const payload = this.#printed("events", event);
    if (payload === undefined) return;
    const atMicros = this.#book.clock.nowMicros();
    this.#book.event(payload, atMicros);
    if (!this.#book.hasEnded) this.#deriver?.next(payload, atMicros);
  }

  message({ type, payload, key, sentAt, sender }: WriterMessage): void {
    const printed = this.#printed("messages", payload);
    if (printed === undefined) return;
    const sentAtMs = sentAt?.getTime();
    if (sentAtMs !== undefined && !Number.isInteger(sentAtMs)) {
      return this.#book.refuse("messages", { reason: INVALID, message: "sentAt is no time" });
    }
    this.#book.message(
      {
        eventType: type,
        payload: printed,
        key: key ?? crypto.randomUUID(),
        sentAtMicros: sentAtMs === undefined ? undefined : BigInt(sentAtMs) * MICROS_PER_MS,
        sender: sender && { ...sender },
      },
      this.#book.clock.nowMicros(),
    );
  }

  async text(stream: AsyncIterable<string>, options: TextOptions = {}): Promise<void> {
    const { sessionId: threadId } = this.#options;
    for await (const event of eventsOfText(stream, { threadId, ...options })) this.event(event);
  }

  async flush({ timeoutMs = FLUSH_TIMEOUT_MS } = {}): Promise<FlushResult> {
    this.#deriver?.settle();
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), timeoutMs);
    await Promise.race([this.#ready.promise, aborted(late.signal)]);
    const complete = await this.#book.settledSoFar(late.signal);
    clearTimeout(timer);
    const { events, messages, state } = this.stats;
    return { complete, events: events.pending, messages: messages.pending, state };
  }

  close(options: { readonly timeoutMs?: number } = {}): Promise<CloseResult> {
    this.#closing ??= this.#close(options);
    return this.#closing;
  }

  async #close(options: { readonly timeoutMs?: number }): Promise<CloseResult> {
    const { complete } = await this.flush(options);
    this.#book.close();
    this.#connection.close();
    await this.#running;
    const kept = await this.#book.closeLog();
    const { stats } = this;
    const { events, messages, state } = stats;
    return { complete, events: events.pending, messages: messages.pending, state, kept, stats };
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
    await Promise.all([
      new EventSender(this.#book, this.#connection, this.#options).run(),
      sendMessages(this.#book, this.#connection, this.#options),
    ]);
    this.#connection.close();
  }

  /** Undefined: it cannot be sent, and that was counted. */
  #printed(stream: "events" | "messages", value: object | string): string | undefined {
    try {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      if (typeof text !== "string") throw new TypeError("it has no JSON");
      if (text.length * 3 > PAYLOAD_BYTES_MAX && Buffer.byteLength(text) > PAYLOAD_BYTES_MAX) {
        throw new RangeError(`a payload has at most ${PAYLOAD_BYTES_MAX} bytes`);
      }
      if (text.isWellFormed()) return text;
      return stream === "events" ? withEscapedHalves(text) : text.toWellFormed();
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.#book.refuse(stream, { reason: INVALID, message });
      return undefined;
    }
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Half of a surrogate pair has no UTF-8; in JSON it has another spelling, which is the same string. */
function withEscapedHalves(json: string): string {
  return json.replaceAll(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
}
