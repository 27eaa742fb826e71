import type {
  Compression,
  Opened,
  OpenSchema,
  PushSessionEventsRequestSchema,
  PushSessionEventsResponse,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { reasonOf } from "./history.ts";
import type { Random } from "./random.ts";
import type { Acknowledgement, ExpectedEvent, Opening, WriterRecord } from "./stream-check.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "./streams.ts";
import { pace } from "./eventually.ts";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type MessageStream, RpcClient, RpcFailure } from "./grpc-client.ts";
import { expectedOf, noVersionAccepts } from "./recorded.ts";

// A small, exact client of PushSessionEvents, with no SDK and no compressor. It numbers its events,
// sends them in batches of random sizes, and after any break asks another way what is committed and
// sends on from there, often a little from before it.
//
//   queue ──► events ──► batches, as many bytes as may be unacknowledged ──► one connection
//                                                                               │
//   acknowledged ◄── Committed ◄────────────────────────────────────────────────┤
//   pause, next way, the same epoch, on from last_client_seq + 1 ◄── a break, or silence
//
// What breaks is repeated; what the service refuses for good ends the writer. A connection that is
// silent for too long is left as it is, not cancelled: for the service its writer still lives.

export interface StreamWriterOptions {
  readonly sessionId: string;
  /** Addresses, used in turn. */
  readonly ways: readonly string[];
  readonly random: Random;
  /** 0 or absent: the highest epoch so far plus 1. */
  readonly epoch?: bigint;
  readonly compression?: Compression;
  readonly maxAgeMs?: number;
  readonly maxTextBytes?: number;
  /** The longest pause before each batch. */
  readonly paceMs?: number;
  /** The time for an answer before the writer uses another address. */
  readonly silenceMs?: number;
}

const BATCH_EVENTS_MAX = 24;
const OVERLAP_EVENTS_MAX = 4;
const PAUSE_MS_MAX = 120;
/** A writer whose groups may grow older than this sends a flush instead of waiting. */
const AGE_WAITED_FOR_MS = 300;
const SILENCE_MS = 20_000;

export class StreamWriter {
  readonly sessionId: string;
  readonly events: StreamEvent[] = [];
  readonly acknowledged: Acknowledgement[] = [];
  /** The reasons why its connections ended, one by one. */
  readonly breaks: string[] = [];
  /** The reasons why the connections that it had left ended. */
  readonly left: string[] = [];
  readonly #options: StreamWriterOptions;
  readonly #openings: Opening[] = [];
  readonly #refused: bigint[] = [];
  readonly #conversations: Conversation[] = [];
  /** Payload bytes before each event and after the last. */
  readonly #bytesBefore = [0n];
  readonly #ended: Promise<void>;
  #epoch: bigint;
  #firstClientSeq: bigint | undefined;
  #failure: unknown;
  #isClosing = false;
  #changed = Promise.withResolvers<void>();
  /** Doubled by each silence, until an answer comes: a busy service may be slower than the silence. */
  #patience = 1;
  /** Ends the connection in use; the writer continues. */
  #endCurrent: (reason: string) => void = () => undefined;

  constructor(options: StreamWriterOptions) {
    this.sessionId = options.sessionId;
    this.#options = options;
    this.#epoch = options.epoch ?? 0n;
    this.#ended = this.#run().catch((error: unknown) => {
      this.#failure = error;
      this.#change();
    });
  }

  /** 0 until it is known. */
  get epoch(): bigint {
    return this.#epoch;
  }

  /** The number of its acknowledged events. */
  get progress(): number {
    return this.#indexOf(this.#acknowledgedUpTo + 1n);
  }

  /** The highest acknowledged seq. */
  get head(): bigint {
    return this.acknowledged.findLast(({ seq = 0n }) => seq > 0n)?.seq ?? 0n;
  }

  queue(events: readonly StreamEvent[]): void {
    for (const event of events) {
      this.events.push(event);
      const before = this.#bytesBefore.at(-1) ?? 0n;
      this.#bytesBefore.push(before + BigInt(Buffer.byteLength(event.payload)));
    }
    this.#change();
  }

  /** Resolves when the condition holds; rejects when the service ended the writer before. */
  async until(isSo: () => boolean): Promise<void> {
    await this.#when(() => isSo() || this.#failure !== undefined);
    if (!isSo()) throw this.#failure;
  }

  /** The error with which the service ended it. */
  async failure(): Promise<unknown> {
    await this.#when(() => this.#failure !== undefined);
    return this.#failure;
  }

  /** Leaves its connection silently for the next address. */
  leave(): void {
    this.#endCurrent("LEFT");
  }

  /** Resolves when all its events are acknowledged and the service has ended the stream with OK. */
  async finish(): Promise<void> {
    await this.until(() => this.progress === this.events.length);
    this.#isClosing = true;
    this.#conversations.at(-1)?.end();
    await this.#ended;
    await this.close();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#endCurrent("CLOSED");
    await this.#ended;
    for (const conversation of this.#conversations) conversation.cancel();
  }

  /** For the checker; `expect` returns the expected stored form of an accepted event. */
  record(expect: (event: StreamEvent) => ExpectedEvent | undefined): WriterRecord {
    return {
      name: `${this.sessionId}, epoch ${this.#epoch}`,
      epoch: this.#epoch,
      firstClientSeq: this.#firstClientSeq ?? 1n,
      sent: this.events.map(expect),
      openings: this.#openings,
      acknowledged: this.acknowledged,
      refused: this.#refused,
      isWhole: this.progress === this.events.length,
    };
  }

  get #acknowledgedUpTo(): bigint {
    return this.acknowledged.at(-1)?.clientSeq ?? 0n;
  }

  #indexOf(clientSeq: bigint): number {
    const index = clientSeq - (this.#firstClientSeq ?? 1n);
    return index < 0n ? 0 : Number(index);
  }

  #change(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  async #when(isSo: () => boolean): Promise<void> {
    while (!isSo()) await this.#changed.promise;
  }

  async #run(): Promise<void> {
    const { ways, random } = this.#options;
    for (let turn = random.below(ways.length); !this.#isClosing; turn += 1) {
      const reason = await this.#converse(ways[turn % ways.length] ?? "");
      if (reason === "SILENT") this.#patience *= 2;
      this.breaks.push(reason);
      if (!this.#isClosing) await pace(random.below(PAUSE_MS_MAX));
    }
  }

  /** Resolves with the cause of a broken connection; rejects with an error that must not be repeated. */
  async #converse(address: string): Promise<string> {
    const conversation = new Conversation(address, this.#open());
    this.#conversations.push(conversation);
    const ended = Promise.withResolvers<string>();
    this.#endCurrent = ended.resolve;
    this.#read(conversation).then(ended.resolve, ended.reject);
    this.#sendAll(conversation).catch(ended.reject);
    // The writer waits for an opening that asks for an epoch: another one would get another epoch.
    const { silenceMs = SILENCE_MS } = this.#options;
    const patientMs = (): number => Math.min(silenceMs * this.#patience, SILENCE_MS);
    const silent = conversation.silence(() => (this.#epoch === 0n ? SILENCE_MS : patientMs()));
    try {
      return await Promise.race([ended.promise, silent]);
    } finally {
      conversation.isOver = true;
      this.#change();
    }
  }

  #open(): Open {
    const { sessionId, compression, maxAgeMs, maxTextBytes } = this.#options;
    return {
      sessionId,
      producerEpoch: this.#epoch,
      ...(compression === undefined ? {} : { compression }),
      ...(maxAgeMs === undefined ? {} : { maxAgeMs }),
      ...(maxTextBytes === undefined ? {} : { maxTextBytes }),
    };
  }

  async #read(conversation: Conversation): Promise<string> {
    let reason = "OK";
    try {
      await conversation.read((frame) => {
        if (!conversation.isOver) this.#came(conversation, frame);
      });
    } catch (error) {
      const passes = isBreak(error) || conversation.isOver || this.#mayHaveReplacedItself(error);
      if (!passes) throw error;
      reason = reasonOf(error);
    }
    if (conversation.isOver) this.left.push(reason);
    else conversation.cancel();
    if (reason === "OK" && !this.#isClosing) throw new Error("ended with OK, and not at its end");
    return reason;
  }

  /** An unanswered opening may reach the table after a later one of the same writer. */
  #mayHaveReplacedItself(error: unknown): boolean {
    const isUnanswered = ({ isOver, nextClientSeq }: Conversation): boolean =>
      isOver && nextClientSeq === 0n;
    return reasonOf(error) === "STREAM_REPLACED" && this.#conversations.some(isUnanswered);
  }

  #came(conversation: Conversation, frame: ReceivedFrame): void {
    const isFirst = conversation.nextClientSeq === 0n;
    if (isFirst !== (frame.case === "opened")) throw new Error(`${frame.case} is out of place`);
    if (frame.case === "opened") this.#wasOpened(conversation, frame.value);
    if (frame.case === "refused") this.#refused.push(frame.value.clientSeq);
    if (frame.case === "committed") {
      const { lastClientSeq, lastSeq } = frame.value;
      if (lastClientSeq > conversation.sentClientSeq) {
        throw new Error(`${lastClientSeq} acknowledged, ${conversation.sentClientSeq} sent`);
      }
      this.acknowledged.push({ clientSeq: lastClientSeq, seq: lastSeq });
      this.#patience = 1;
    }
    conversation.answered({ isMoreDue: this.#isAnswerDue(conversation) });
    this.#change();
  }

  #wasOpened(conversation: Conversation, opened: Opened): void {
    const { lastClientSeq, refused, producerEpoch, maxUnacknowledgedBytes } = opened;
    if (this.#epoch !== 0n && producerEpoch !== this.#epoch) {
      throw new Error(`asked for epoch ${this.#epoch}, and opened ${producerEpoch}`);
    }
    this.#epoch = producerEpoch;
    this.#firstClientSeq ??= lastClientSeq + 1n;
    this.#openings.push({ lastClientSeq, refused });
    this.acknowledged.push({ clientSeq: lastClientSeq, seq: undefined });
    if (lastClientSeq >= this.#firstClientSeq + BigInt(this.events.length)) {
      throw new Error(`opened at ${lastClientSeq}, which was never sent`);
    }
    conversation.sentClientSeq = lastClientSeq;
    conversation.bytesMax = maxUnacknowledgedBytes;
    conversation.nextClientSeq = this.#littleBefore(lastClientSeq + 1n);
  }

  /** The service has to skip events that are sent again. */
  #littleBefore(clientSeq: bigint): bigint {
    const from = clientSeq - BigInt(this.#options.random.below(OVERLAP_EVENTS_MAX));
    const first = this.#firstClientSeq ?? 1n;
    return from < first ? first : from;
  }

  async #sendAll(conversation: Conversation): Promise<void> {
    const { random, paceMs = 0, maxAgeMs = 0 } = this.#options;
    for (;;) {
      await this.#when(() => conversation.isOver || this.#next(conversation, 1).length > 0);
      if (paceMs > 0) await pace(random.below(paceMs));
      if (conversation.isOver) return;
      const events = this.#next(conversation, 1 + random.below(BATCH_EVENTS_MAX));
      const firstClientSeq = conversation.nextClientSeq;
      conversation.nextClientSeq += BigInt(events.length);
      const last = conversation.nextClientSeq - 1n;
      if (last > conversation.sentClientSeq) conversation.sentClientSeq = last;
      const isAnswerDue = this.#isAnswerDue(conversation);
      const batch = { firstClientSeq, events: [...events] };
      conversation.send({ case: "batch", value: batch }, { isAnswerDue });
      if (random.oneIn(4)) conversation.restsUntil = conversation.nextClientSeq - 1n;
      const isWaiting = this.#next(conversation, 1).length === 0;
      if (isWaiting && (random.oneIn(2) || maxAgeMs > AGE_WAITED_FOR_MS)) {
        conversation.send({ case: "flush", value: {} }, { isAnswerDue });
      }
      if (random.oneIn(8)) {
        conversation.nextClientSeq = this.#littleBefore(conversation.nextClientSeq);
      }
    }
  }

  #isAnswerDue({ nextClientSeq }: Conversation): boolean {
    return this.#acknowledgedUpTo + 1n < nextClientSeq;
  }

  /** The events that may be sent now, up to the limit; at least one when nothing is unacknowledged. */
  #next(conversation: Conversation, eventsMax: number): readonly StreamEvent[] {
    const { nextClientSeq, restsUntil, bytesMax } = conversation;
    if (nextClientSeq === 0n || this.#acknowledgedUpTo < restsUntil) return [];
    const from = this.#indexOf(nextClientSeq);
    const acknowledged = Math.min(this.progress, from);
    const candidates = this.events.slice(from, from + eventsMax);
    return candidates.filter((_, at) => {
      const end = from + at + 1;
      const bytes = (this.#bytesBefore[end] ?? 0n) - (this.#bytesBefore[acknowledged] ?? 0n);
      return bytes <= bytesMax || end === acknowledged + 1;
    });
  }
}

// One connection of a stream writer: its frames, and how long it has been silent.

type Request = MessageInitShape<typeof PushSessionEventsRequestSchema>;

export type Open = MessageInitShape<typeof OpenSchema>;
export type ReceivedFrame = PushSessionEventsResponse["frame"];

/** The interval of the check for silence. */
const LOOK_EVERY_MS = 50;

export class Conversation {
  /** The next number to send; 0 until the service has sent the position of the epoch. */
  nextClientSeq = 0n;
  /** The highest number sent on it, or known when it opened. */
  sentClientSeq = 0n;
  bytesMax = 0n;
  /** Nothing is sent before this number is acknowledged. */
  restsUntil = 0n;
  /** Its answers are ignored from now on. */
  isOver = false;
  readonly #client: RpcClient;
  readonly #stream: MessageStream<PushSessionEventsResponse> & {
    send(request: Request): void;
    end(): void;
  };
  #waitingSinceMs: number | undefined = performance.now();
  #hasEnded = false;

  constructor(address: string, open: Open) {
    this.#client = new RpcClient(address);
    this.#stream = this.#client.bidiStream(SessionService.method.pushSessionEvents);
    this.#stream.send({ frame: { case: "open", value: open } });
  }

  send(
    frame: NonNullable<Request["frame"]>,
    { isAnswerDue }: { readonly isAnswerDue: boolean },
  ): void {
    if (this.isOver || this.#hasEnded) return;
    if (isAnswerDue) this.#waitingSinceMs ??= performance.now();
    this.#stream.send({ frame });
  }

  /** Resolves when the service ends it with OK. */
  async read(came: (frame: ReceivedFrame) => void): Promise<void> {
    for await (const { frame } of this.#stream) came(frame);
  }

  /** Records that an answer arrived. */
  answered({ isMoreDue }: { readonly isMoreDue: boolean }): void {
    this.#waitingSinceMs = isMoreDue ? performance.now() : undefined;
  }

  /** Resolves when it has waited that long for an answer. */
  async silence(limitMs: () => number): Promise<string> {
    for (;;) {
      await pace(LOOK_EVERY_MS);
      const sinceMs = this.#waitingSinceMs ?? Number.POSITIVE_INFINITY;
      if (this.isOver || performance.now() - sinceMs > limitMs()) return "SILENT";
    }
  }

  /** Ends the sending side: nothing is left to send. */
  end(): void {
    this.#hasEnded = true;
    this.#stream.end();
  }

  cancel(): void {
    this.#stream.cancel();
    this.#client.close();
  }
}

/** True when another attempt may succeed: the connection broke, or the error has a retry time. */
export function isBreak(error: unknown): boolean {
  if (!(error instanceof RpcFailure)) return false;
  const { code, reason, retryAfterMs } = error;
  // An error without a reason is not from the service but from something in between.
  return reason === undefined || code === "UNAVAILABLE" || retryAfterMs !== undefined;
}

// The events of stream writers: whole streams one after the other, and invented sentences between them.

/** Pieces that are easily lost or changed: empty text, blanks, half pairs, characters that JSON escapes. */
const PIECES = [
  "",
  " ",
  "\n",
  "\ud83d",
  "\ude00",
  "token",
  " by",
  " token",
  '"',
  "\\",
  "\u0000",
  "é",
];
const SENTENCE_PIECES_MAX = 120;
const recorded = recordedStreams();
/** Some agents said nothing at all. */
const STREAMS = (recorded ?? ownStreams()).filter(({ events }) => events.length > 0);
/** A type that no version of the protocol has. */
const REFUSED = streamEvent("USAGE_METADATA", { tokens: 1 });

export class StreamSource {
  readonly #random: Random;
  #sentences = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  next(): readonly StreamEvent[] {
    if (this.#random.oneIn(2)) return this.#random.pick(STREAMS).events;
    const sentence = this.sentence();
    const at = this.#random.below(sentence.length);
    return this.#random.oneIn(3) ? sentence.toSpliced(at, 0, REFUSED) : sentence;
  }

  sentence(pieces = this.#random.below(SENTENCE_PIECES_MAX)): readonly StreamEvent[] {
    this.#sentences += 1;
    const of = { messageId: `sentence ${this.#sentences}` };
    const isTimed = this.#random.oneIn(2);
    let timestamp = 1_700_000_000_000;
    const contents = Array.from({ length: pieces }, () => {
      timestamp += this.#random.below(50) - 5; // Clocks step back.
      const delta = this.#random.pick(PIECES);
      return streamEvent("TEXT_MESSAGE_CONTENT", {
        ...of,
        delta,
        ...(isTimed ? { timestamp } : {}),
      });
    });
    return [
      streamEvent("TEXT_MESSAGE_START", { ...of, role: "assistant" }),
      ...contents,
      streamEvent("TEXT_MESSAGE_END", of),
    ];
  }
}

/** The expected event; undefined for one that has to be refused. No hand-written one is. */
export function expectationOf(sent: StreamEvent): ExpectedEvent | undefined {
  const isRefused = sent === REFUSED || (recorded !== undefined && noVersionAccepts(sent));
  return isRefused ? undefined : { eventType: sent.eventType, value: expectedOf(sent).value };
}

function streamEvent(type: string, fields: object): StreamEvent {
  return { eventType: type, payload: JSON.stringify({ type, ...fields }) };
}
