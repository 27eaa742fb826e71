/**
 * Answers a request with server-sent events, at the pace of the reader.
 *
 *   waiting for the first frame ── it is there ──► open ── source ends, fails, stops ──► ending ──► over
 *        │ the source throws                         │                                     │
 *        ▼                                           └────────── the client left ──────────┘
 *   an error answer, by the framework
 *
 * - The first frame decides the status: a refused watch is a 4xx or 503, and never a 200 that ends.
 * The headers wait for the first frame, so a source without data begins with a comment.
 * - The source is asked for the next frame when the connection has room again (a `write() ===
 * false` is waited for). So a client that does not read holds one frame and the socket's buffer,
 * and its source stands still. That client gets no heartbeats either: they would wait in the same
 * buffer. The held bytes are charged to the caller, and the stream is cut when no byte leaves for
 * UNREAD_LIMIT_MS.
 * - A fast client never makes the source wait; so other work gets a turn of the event loop every
 * few milliseconds.
 * - A later error cannot change the status: it is sent as the last event, and the stream ends
 * normally. A stream that ends without it was cut by the network.
 * - The source is ended by its `return`, which runs its `finally`. A source that waits for a
 * promise does not see that. It must also watch the signal of the context, which is aborted when
 * the client leaves and, with a ServiceError as the reason, when the service stops.
 */
import type { ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";
import { type CallMemory, UNREAD_LIMIT_MS } from "../auth/caller-memory.ts";
import { ServiceError } from "../base/errors.ts";
import type { CallContext } from "../contract/context.ts";
import { TimeSlice } from "../contract/time-slice.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { problemOf } from "./plumbing/problem.ts";
import { frameParts, openingText, type SseFrame } from "./sse-frames.ts";
import { limitUnread } from "./plumbing/limits.ts";
import type { UnsentFrames } from "./unsent-frames.ts";

export interface EventStreamOptions {
  readonly metrics: Pick<Metrics, "sseStreams">;
  readonly log: Log;
  readonly unsent: UnsentFrames;
  /** The time from one write to the comment that shows that the stream lives. */
  readonly heartbeatMs: number;
  /**
   * Makes the frame of an error after the first frame; without it the frame is an event named
   * `error`.
   */
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

/** The time that a client that does not read may delay a stop, before its connection is cut. */
const LAST_WRITE_LIMIT_MS = 1_000;

/**
 * Resolves when the stream is over and the source has run its `finally`. Rejects, without an
 * answer, with the error that the source throws before its first frame: the route passes it on.
 */
export async function sendEventStream(
  reply: FastifyReply,
  context: CallContext,
  source: AsyncIterable<SseFrame>,
  options: EventStreamOptions,
): Promise<void> {
  const frames = source[Symbol.asyncIterator]();
  let step = await frames.next();
  const stream = new OpenStream(reply, options, context.memory);
  const stop = (): void => stream.stop(context.signal.reason);
  context.signal.addEventListener("abort", stop, { once: true });
  stream.open(reply);
  if (context.hasEnded) stop();
  const slice = new TimeSlice();
  try {
    while (!stream.hasEnded && step.done !== true) {
      await stream.send(step.value);
      const turn = slice.turn();
      if (turn !== undefined) await turn;
      if (!stream.hasEnded) step = await frames.next();
    }
    stream.end();
  } catch (error) {
    stream.fail(error);
  } finally {
    await frames.return?.().catch((error: unknown) => stream.fail(error));
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
    const retryMs = RETRY_MIN_MS + Math.random() * (RETRY_MAX_MS - RETRY_MIN_MS);
    this.#response.write(openingText(retryMs));
  }

  /** Resolves when there is room for the next frame. */
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
    if (this.#memory !== undefined) unsent.taken(frame, this.#memory);
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

  /**
   * Node would keep the connection for further requests, which a stopping service does not take.
   */
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
   * Node encodes a text to bytes, and holds them until they are sent; given bytes are not copied.
   * For a text Node allocates three bytes per character, for any text.
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
  // The client's number may belong to another row by now: its next connection starts at the
  // beginning.
  const id = error.reason === "CURSOR_BEYOND_HEAD" ? { id: "0" } : {};
  return { event: "error", data, ...id, ...retry };
}

/** The error with which Node's timers and streams reject when their signal is aborted. */
function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}
