/**
 * Answers a request with server-sent events, at the pace of the reader.
 *
 *   waiting for the first frame ── it arrived ──► open ── source ends, fails, stops ──► ending ──► over
 *        │ the source throws                         │                                     │
 *        ▼                                           └────────── the client left ──────────┘
 *   an error answer, by the framework
 *
 * - The first frame decides the status: a refused watch is a 4xx or 503, and never a 200 that ends.
 * The headers wait for the first frame, so a source without data begins with a comment.
 * - The source is asked for the next frame when the connection has room again. So a client that does
 * not read holds one frame and the socket's buffer, charged to its caller, and gets no heartbeats.
 * The stream is cut when no byte leaves for UNREAD_LIMIT_MS.
 * - A fast client never makes the source wait, so other work gets turns of the event loop.
 * - A later error is the last event, and the stream ends normally. Without it, the network has cut
 * the stream.
 * - The source is ended by its `return`. A source that waits for a promise must also watch the
 * signal of the context: the client left or, with a ServiceError as the reason, the service stops.
 */
import type { ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";
import { type CallMemory, UNREAD_LIMIT_MS } from "../base/budget.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { only, Pull } from "../base/pull.ts";
import { isAbort, type CallContext } from "../contract/context.ts";
import { TimeSlice } from "../contract/time-slice.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { limitUnread } from "./plumbing/listener.ts";
import { problemOf } from "./plumbing/problem.ts";

export interface EventStreamOptions {
  readonly metrics: Pick<Metrics, "sseStreams">;
  readonly log: Log;
  readonly unsent: UnsentFrames;
  /** The time from one write to the comment that shows that the stream lives. */
  readonly heartbeatMs: number;
  /** The frame of an error after the first frame; the default is an event named `error`. */
  readonly failure?: (error: ServiceError) => SseFrame;
}

const HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  // nginx would collect the stream and pass it on in blocks of 4 or 8 KiB.
  "x-accel-buffering": "no",
};

/** A random time between these two: clients of a restarting service must not all return at once. */
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 2_000;
/** After a failover that lost rows, the service is not away: its clients shall see the new rows within a second. */
const LOST_RETRY_MIN_MS = 100;
const LOST_RETRY_MAX_MS = 600;

function randomBetween(minMs: number, maxMs: number): number {
  return minMs + Math.random() * (maxMs - minMs);
}

/** The time that a client that does not read may delay a stop, before its connection is cut. */
const LAST_WRITE_LIMIT_MS = 1_000;

/**
 * Resolves when the stream is over and the source has run its `finally`. Rejects, without an
 * answer, with an error before the first frame.
 */
export async function sendEventStream(
  reply: FastifyReply,
  context: CallContext,
  source: AsyncIterable<SseFrame>,
  options: EventStreamOptions,
): Promise<void> {
  const frames = new Pull(source, only);
  await frames.read();
  const stream = new OpenStream(reply, options, context.memory);
  const stop = (): void => stream.stop(context.signal.reason);
  context.signal.addEventListener("abort", stop, { once: true });
  stream.open(reply);
  if (context.hasEnded) stop();
  const slice = new TimeSlice();
  try {
    while (!stream.hasEnded && (frames.hasNext() || (await frames.read()))) {
      await stream.send(frames.take());
      const turn = slice.turn();
      if (turn !== undefined) await turn;
    }
    stream.end();
  } catch (error) {
    stream.fail(error);
  } finally {
    await frames.close().catch((error: unknown) => stream.fail(error));
    await stream.closed;
    context.signal.removeEventListener("abort", stop);
  }
}

class OpenStream {
  /** True when nothing more can be sent. */
  hasEnded = false;
  /** Resolves when the last byte was sent, or the connection is gone. */
  readonly closed: Promise<void>;
  readonly #options: EventStreamOptions;
  readonly #response: ServerResponse;
  readonly #heartbeat: NodeJS.Timeout;
  readonly #memory: CallMemory | undefined;
  #room: PromiseWithResolvers<void> | undefined;

  constructor(reply: FastifyReply, options: EventStreamOptions, memory: CallMemory | undefined) {
    this.#options = options;
    this.#memory = memory;
    this.#response = reply.raw;
    this.#heartbeat = setInterval(() => this.#beat(), options.heartbeatMs);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    const route = reply.request.routeOptions.url ?? "";
    options.metrics.sseStreams.inc({ route });
    const onClose = (): void => {
      this.#finish();
      options.metrics.sseStreams.dec({ route });
      resolve();
    };
    // If the client left before the first frame, the close event has passed already.
    if (reply.raw.closed) onClose();
    else reply.raw.once("close", onClose).on("drain", () => this.#room?.resolve());
  }

  /** From here on this code writes the answer: no hook of the framework sees it. */
  open(reply: FastifyReply): void {
    void reply.hijack();
    if (this.hasEnded) return;
    for (const [name, value] of Object.entries({ ...reply.getHeaders(), ...HEADERS })) {
      if (value !== undefined) this.#response.setHeader(name, value);
    }
    if (reply.request.method === "HEAD") return this.end();
    this.#response.write(openingText(randomBetween(RETRY_MIN_MS, RETRY_MAX_MS)));
  }

  /** Resolves when room is free for the next frame. */
  async send(frame: SseFrame): Promise<void> {
    if (this.hasEnded) return;
    this.#heartbeat.refresh();
    this.#write(frame);
    if (!this.#response.writableNeedDrain) return;
    this.#room = Promise.withResolvers();
    limitUnread(this.#response, UNREAD_LIMIT_MS);
    const { unsent } = this.#options;
    if (this.#memory !== undefined && !unsent.hold(frame, this.#memory)) this.#cut();
    await this.#room.promise;
    if (this.#memory !== undefined) unsent.release(frame, this.#memory);
    limitUnread(this.#response, 0);
    this.#room = undefined;
  }

  end(lastFrame?: SseFrame): void {
    if (this.hasEnded) return;
    if (lastFrame !== undefined) this.#write(lastFrame);
    this.#finish();
    this.#response.end();
  }

  /** Anything that is not a ServiceError is a defect. */
  fail(cause: unknown): void {
    const error = ServiceError.from(cause);
    if (error.code === "internal" && !isAbort(cause)) {
      this.#options.log.error({ err: error }, "event stream failed");
    }
    this.end((this.#options.failure ?? errorEvent)(error));
  }

  /** Closes the connection, which Node would keep for further requests. */
  stop(reason: unknown): void {
    const { socket, closed } = this.#response;
    if (closed) return;
    if (!(reason instanceof ServiceError)) return this.end();
    this.fail(reason);
    const timer = setTimeout(() => this.#response.destroy(), LAST_WRITE_LIMIT_MS);
    this.#response.once("close", () => {
      clearTimeout(timer);
      socket?.end();
    });
  }

  #cut(): void {
    this.#options.log.warn({ unsentBytes: this.#response.writableLength }, "event stream cut");
    this.#response.destroy();
  }

  /**
   * Node holds a text as bytes until it is sent, in three bytes per character. Given bytes are not
   * copied.
   */
  #write(frame: SseFrame): void {
    for (const part of frameParts(frame)) {
      const isLarge = typeof part === "string" && part.length > LARGE_TEXT_CHARS;
      this.#response.write(isLarge ? Buffer.from(part) : part);
    }
  }

  #finish(): void {
    this.hasEnded = true;
    clearInterval(this.#heartbeat);
    this.#room?.resolve();
  }

  #beat(): void {
    if (!this.#response.writableNeedDrain) this.#write(PING);
  }
}

/** Below this length, a text that Node encodes costs less than a Buffer. */
const LARGE_TEXT_CHARS = 16 * 1024;

const PING: SseFrame = { comment: "ping" };

function errorEvent(error: ServiceError): SseFrame {
  const { retryAfterMs: retryMs } = error;
  const data = JSON.stringify(problemOf(error));
  const retry = retryMs === undefined ? {} : { retryMs };
  // The number may belong to another row by now: the next connection starts at 0.
  if (error.reason === "CURSOR_BEYOND_HEAD") {
    const lostRetryMs = randomBetween(LOST_RETRY_MIN_MS, LOST_RETRY_MAX_MS);
    return { event: "error", data, id: "0", retryMs: lostRetryMs };
  }
  return { event: "error", data, ...retry };
}

/**
 * Server-sent events as text (https://html.spec.whatwg.org/multipage/server-sent-events.html). We
 * write LF only, because clients of AG-UI (0.0.59 and 1.0.0) cut lines at nothing else. Every line
 * break in `data` arrives as LF; between the tokens of a JSON text that is equal white space.
 */
export type SseFrame = SseEvent | SsePosition | SseComment;

export interface SseEvent {
  /** A returning client sends this in Last-Event-ID. Without one, the previous id stays. */
  readonly id?: string;
  /** The name for listeners; without one it is `message`. AG-UI clients ignore it. */
  readonly event?: string;
  /** The time that an EventSource waits before it connects again. */
  readonly retryMs?: number;
  /** Bytes are one line of UTF-8, written unchanged: many streams may share them. */
  readonly data: string | Uint8Array;
}

/**
 * An id without an event, which a parser keeps. It marks the start of a stream that has sent
 * nothing, so that a client comes back to that place.
 */
export interface SsePosition {
  readonly id: string;
  readonly data?: undefined;
}

/** For proxies, people and tools; clients do not emit it. */
export interface SseComment {
  readonly comment: string;
}

const LINE_BREAK = /\r\n|\r|\n/;
/** U+0000 too: a parser ignores an id that contains it. */
const NOT_IN_A_FIELD = /[\r\n\0]/;

/** The parts to write, one after the other, with the empty line at the end. */
export function frameParts(frame: SseFrame): readonly (string | Uint8Array)[] {
  if ("comment" in frame) return [`${fieldLines("", frame.comment)}\n`];
  if (frame.data === undefined) return [`id: ${oneLine("id", frame.id)}\n\n`];
  const { id, event, retryMs, data } = frame;
  const name = event === undefined ? "" : `event: ${oneLine("event", event)}\n`;
  const number = id === undefined ? "" : `id: ${oneLine("id", id)}\n`;
  const retry = retryMs === undefined ? "" : retryLine(retryMs);
  const head = `${name}${number}${retry}`;
  if (typeof data === "string") return [`${head}${fieldLines("data", data)}\n`];
  return [`${head}data: `, data, "\n\n"];
}

/** The beginning of a stream. */
export function openingText(retryMs: number): string {
  return `${retryLine(retryMs)}\n`;
}

/** The parser removes one space, so a line that begins with its own space keeps it. */
function fieldLines(field: string, text: string): string {
  if (!LINE_BREAK.test(text)) return `${field}: ${text}\n`;
  return text
    .split(LINE_BREAK)
    .map((line) => `${field}: ${line}\n`)
    .join("");
}

function oneLine(field: string, text: string): string {
  if (NOT_IN_A_FIELD.test(text)) throw new TypeError(`an SSE ${field} is one line`);
  return text;
}

function retryLine(retryMs: number): string {
  return `retry: ${Math.round(retryMs)}\n`;
}

/** A text is held by its source and, as bytes, by Node. */
const BYTES_PER_CHAR = 3;

/**
 * Frames that clients have not taken, charged to their callers. Shared bytes are charged to the
 * first stream that holds them, then to the next one.
 */
export class UnsentFrames {
  readonly #shared = new Map<Uint8Array, Set<CallMemory>>();

  /** The stream waits with this frame. False: no room is free. */
  hold(frame: SseFrame, memory: CallMemory): boolean {
    const data = "comment" in frame ? frame.comment : (frame.data ?? "");
    if (typeof data === "string") return memory.resize("answer", data.length * BYTES_PER_CHAR);
    const holders = this.#shared.get(data) ?? new Set();
    this.#shared.set(data, holders);
    holders.add(memory);
    return holders.size > 1 || memory.resize("answer", data.length);
  }

  /** The stream continues, or is gone. */
  release(frame: SseFrame, memory: CallMemory): void {
    memory.resize("answer", 0);
    if ("comment" in frame || !(frame.data instanceof Uint8Array)) return;
    const { data } = frame;
    const holders = this.#shared.get(data);
    if (holders === undefined) return;
    const [payer] = holders;
    holders.delete(memory);
    const [next] = holders;
    if (next === undefined) this.#shared.delete(data);
    else if (payer === memory) next.takeOver("answer", data.length);
  }
}
