/**
 * Writes both streams of a session from one source, for a runner. The agent's records are taken
 * without waiting, and sent in the background until the service has them.
 *
 *   event ──► print ──► spool ──► stream of events ──► service
 *               └─────► derive ─► spool ──► messages, one by one ──► service
 *
 * The agent's turn pays for printing the object and for little else. All later work is done by two
 * loops (senders.ts) over the shared state (writer-state.ts). Each loop ends only with the writer.
 */
import { isDate } from "node:util/types";
import { systemClock } from "@session-ledger/base/clock";
import { isObject, parseJson } from "@session-ledger/agui/json";
import { PAYLOAD_BYTES_MAX } from "@session-ledger/agui/payload";
import { type PrintedJson, printJson, withinDepth } from "@session-ledger/agui/print";
import { deferred } from "@session-ledger/base/deferred";
import { withEscapedHalves } from "@session-ledger/compressor/text";
import { MessageDeriver } from "../derive/derive.ts";
import { asRpcFailure, textOf } from "../failure.ts";
import type { Sender } from "../rows.ts";
import { eventsOfText } from "../text.ts";
import { openSpoolFile } from "../spool/file.ts";
import type { MessageRecord } from "../spool/spool.ts";
import { SharedState } from "./writer-state.ts";
import { WriterConnection } from "./connection.ts";
import { checkedOptions, type CheckedOptions, flushTimeoutMs } from "./options.ts";
import { EventSender, sendMessages } from "./senders.ts";
import type {
  CloseResult,
  FlushResult,
  SessionWriter,
  SessionWriterOptions,
  Text,
  TextOptions,
  WriterMessage,
  WriterStats,
} from "./types.ts";

const INVALID = "INVALID_REQUEST";

/**
 * Begins to write a session. Nothing is sent before the first record. Throws a RangeError or
 * TypeError for an invalid option; after that, no method throws or rejects.
 */
export function createSessionWriter(options: SessionWriterOptions): SessionWriter {
  return new Writer(checkedOptions(options));
}

class Writer implements SessionWriter {
  readonly #shared: SharedState;
  readonly #options: CheckedOptions;
  readonly #deriver: BackgroundDeriver | undefined;
  readonly #connection: WriterConnection;
  /** Resolves when the records of earlier processes are known. */
  readonly #ready = deferred<void>();
  /** Resolves when no loop runs. */
  readonly #running: Promise<unknown>;
  #closing: Promise<CloseResult> | undefined;

  constructor(options: CheckedOptions) {
    const { clock = systemClock, messages, lifecycleMessages: lifecycle } = options;
    this.#options = options;
    this.#shared = new SharedState(clock, options);
    this.#deriver =
      messages === "derive"
        ? new BackgroundDeriver(new MessageDeriver({ lifecycle }), this.#shared)
        : undefined;
    this.#connection = new WriterConnection(options);
    // A defect here must not become an unhandled rejection, which would end the agent's process.
    this.#running = this.#run().catch((error: unknown) =>
      this.#shared.endWith("ended", asRpcFailure(error)),
    );
  }

  get stats(): WriterStats {
    return this.#shared.stats;
  }

  event(event: object | string): void {
    let payload: string;
    try {
      const { text, replaced } = printed(event);
      payload = withEscapedHalves(text);
      this.#shared.countReplaced("events", replaced);
    } catch (error) {
      return this.#refuse("events", error);
    }
    const atMicros = this.#shared.clock.nowMicros();
    this.#shared.addEvent(payload, atMicros);
    if (this.#shared.run.isOpen && endsRun(payload)) this.#shared.run.end();
    // Also for a refused or dropped event: messages are derived as long as room is free.
    const after = this.#shared.live.events.lastNumber;
    if (!this.#shared.hasEnded) this.#deriver?.next({ payload, atMicros, after });
  }

  runSignal(runId: string): AbortSignal {
    if (this.#shared.hasEnded) return AbortSignal.abort(this.#shared.ending.signal.reason);
    this.#deriver?.beginRun(runId);
    const signal = this.#shared.run.of(runId);
    this.#shared.eventSignal.set(); // A stream is opened, if none is open.
    return signal;
  }

  message(message: WriterMessage): void {
    let record: Omit<MessageRecord, "bytes">;
    try {
      const { replaced, ...fields } = messageOf(message);
      record = fields;
      this.#shared.countReplaced("messages", replaced);
    } catch (error) {
      return this.#refuse("messages", error);
    }
    this.#shared.addMessage(record, this.#shared.clock.nowMicros());
  }

  /** Errors in the agent's own code (a getter, a toJSON) must not disturb its run either. */
  #refuse(stream: "events" | "messages", error: unknown): void {
    this.#shared.refuse(stream, { reason: INVALID, message: textOf(error) });
  }

  async text(answer: Text, options: TextOptions = {}): Promise<void> {
    const { sessionId: threadId } = this.#options;
    for await (const event of eventsOfText(answer, { threadId, ...options })) this.event(event);
  }

  async flush(options?: FlushOptions): Promise<FlushResult> {
    this.#deriver?.settle();
    const { promise: late, resolve } = deferred<void>();
    const timer = setTimeout(resolve, flushTimeoutMs(options?.timeoutMs));
    await Promise.race([this.#ready.promise, late]);
    const complete = await this.#shared.settledSoFar(late);
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
    this.#shared.close();
    this.#connection.renew(); // The calls in progress end normally.
    await this.#running;
    this.#shared.ending.abort();
    const kept = await this.#shared.closeFile();
    const { stats } = this;
    const { state } = stats;
    const left = { events: stats.events.pending, messages: stats.messages.pending };
    if (left.events + left.messages > 0)
      this.#shared.report({ kind: "left_behind", ...left, kept });
    return { complete, ...left, state, kept, stats };
  }

  async #run(): Promise<void> {
    const { file, sessionId } = this.#options;
    if (file !== undefined) {
      const shared = this.#shared;
      const onWritten = (): void => shared.eventSignal.set();
      const opened = await openSpoolFile(
        { file, sessionId, live: shared.live, onWritten },
        (problem) => shared.report(problem),
      );
      if (opened !== undefined) shared.useFile(opened.log, opened.left);
    }
    this.#ready.resolve();
    const parts = { shared: this.#shared, connection: this.#connection, options: this.#options };
    await Promise.all([new EventSender(parts).run(), sendMessages(parts)]);
    this.#connection.renew(); // Closes the client.
  }
}

function endsRun(payload: string): boolean {
  if (!/"RUN_(?:FINISHED|ERROR)"/.test(payload)) return false;
  const event = parseJson(payload);
  return isObject(event) && (event["type"] === "RUN_FINISHED" || event["type"] === "RUN_ERROR");
}

type FlushOptions = { readonly timeoutMs?: number } | undefined;

/** Turns the agent's values into records and messages, without delaying the agent. */

export function messageOf(
  message: WriterMessage,
): Omit<MessageRecord, "bytes"> & Pick<PrintedJson, "replaced"> {
  const { type, payload, key, sentAt, sender } = message;
  // A message may be any text.
  const { text, replaced } = printed(payload, (fields) => ({ text: fields, replaced: new Map() }));
  return {
    replaced,
    eventType: textField("type", type),
    payload: text.toWellFormed(),
    key: textField("key", key || undefined, crypto.randomUUID()),
    sentAtMicros: microsOf(sentAt ?? undefined),
    sender: senderOf(sender ?? undefined),
  };
}

/** Throws for an invalid value: one that cannot be encoded would be pushed again and again. */
function printed(value: unknown, ofText = withinDepth): PrintedJson & { readonly text: string } {
  const { text, replaced } =
    typeof value === "string" ? ofText(value) : printJson(value, PAYLOAD_BYTES_MAX);
  if (text === undefined) throw new TypeError("the value has no JSON");
  // Measuring a text of 100 MiB takes long.
  if (text.length > PAYLOAD_BYTES_MAX || Buffer.byteLength(text) > PAYLOAD_BYTES_MAX) {
    throw new RangeError(`a payload has at most ${PAYLOAD_BYTES_MAX} bytes`);
  }
  return { text, replaced };
}

function textField(name: string, value: unknown, fallback?: string): string {
  const text = value ?? fallback;
  if (typeof text !== "string") throw new TypeError(`${name} must be a string`);
  return text;
}

/** Only a Date: a number would not state its unit, and a text not its time zone. */
function microsOf(sentAt: unknown): bigint | undefined {
  if (sentAt === undefined) return undefined;
  if (!isDate(sentAt)) throw new TypeError("sentAt must be a Date");
  const ms = sentAt.getTime();
  if (!Number.isInteger(ms)) throw new RangeError("sentAt is not a valid time");
  return BigInt(ms) * 1_000n;
}

function senderOf(sender: Sender | undefined): Sender | undefined {
  if (sender === undefined) return undefined;
  if (typeof sender !== "object") throw new TypeError("sender must be an object");
  const { id, name, displayName, isBot, channel, channelId, threadId } = sender;
  const texts = { id, name, displayName, channel, channelId, threadId };
  for (const [field, value] of Object.entries(texts)) textField(`sender.${field}`, value, "");
  if (isBot !== undefined && typeof isBot !== "boolean") {
    throw new TypeError("sender.isBot must be a boolean");
  }
  const fields = Object.entries({ ...texts, isBot }).filter(
    ([, value]) => value !== undefined && value !== null,
  );
  return Object.fromEntries(fields);
}

/** Text that `event` itself parses, in UTF-16 units: about 25 µs (Node 24, a loaded machine). */
const AT_ONCE_UNITS_MAX = 4_096;
/** Text that is parsed in one turn of the event loop; at least one event. */
const SLICE_UNITS = 32_768;
const WAITING_UNITS_MAX = 8 * 1024 * 1024;

interface WaitingEvent {
  readonly payload: string;
  readonly atMicros: bigint;
  /** The producer's number of the event. */
  readonly after: bigint;
}

/**
 * Derives messages from events, which parses them: microseconds for a token, milliseconds for a
 * snapshot of a megabyte. Small events are parsed at once; after a large one all wait for a later
 * turn, in order. Above a bound of waiting text the turn that emits it pays for the parsing.
 */
class BackgroundDeriver {
  readonly #deriver: MessageDeriver;
  readonly #shared: SharedState;
  #waiting: WaitingEvent[] = [];
  #waitingUnits = 0;
  #isScheduled = false;

  constructor(deriver: MessageDeriver, shared: SharedState) {
    this.#deriver = deriver;
    this.#shared = shared;
  }

  next(event: WaitingEvent): void {
    const { length } = event.payload;
    if (this.#waiting.length === 0 && length <= AT_ONCE_UNITS_MAX) {
      this.#derive(event);
      return;
    }
    this.#waiting.push(event);
    this.#noteFirst();
    this.#waitingUnits += length;
    if (this.#waitingUnits > WAITING_UNITS_MAX) this.settle();
    else this.#schedule();
  }

  /** The keys of later messages name this run; the writer gets no RUN_STARTED of a claimed one. */
  beginRun(runId: string): void {
    this.settle(); // Events of the run before it.
    this.#deriver.beginRun(runId);
  }

  /** Derives from all waiting events now. */
  settle(): void {
    this.#slice(Number.POSITIVE_INFINITY);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#slice(SLICE_UNITS);
      if (this.#waiting.length > 0) this.#schedule();
    });
  }

  #slice(unitsMax: number): void {
    let units = 0;
    let count = 0;
    for (const event of this.#waiting) {
      if (count > 0 && units + event.payload.length > unitsMax) break;
      units += event.payload.length;
      count += 1;
      this.#derive(event);
    }
    this.#waiting = this.#waiting.slice(count);
    this.#waitingUnits -= units;
    this.#noteFirst();
    this.#shared.eventSignal.set();
  }

  #noteFirst(): void {
    this.#shared.live.firstUnderived = this.#waiting[0]?.after;
  }

  #derive({ payload, atMicros, after }: WaitingEvent): void {
    for (const { eventType, payload: text, key } of this.#deriver.next(payload)) {
      const message = { eventType, payload: text.toWellFormed(), key, after };
      this.#shared.addMessage({ ...message, sentAtMicros: undefined, sender: undefined }, atMicros);
    }
  }
}
