/**
 * Answers a request with server-sent events, at the pace of whoever reads them.
 *
 *   waiting for the first frame ── it is there ──► open ── source ends, fails, stops ──► ending ──► over
 *        │ the source throws                         │                                     │
 *        ▼                                           └────────── the client left ──────────┘
 *   an error answer, by the framework
 *
 * - The first frame decides the status: a watch that is refused is a 4xx or 503, and no 200 that ends.
 *   Headers wait for it, so a source that has nothing to send yet begins with a comment.
 * - The source is asked for the next frame when the connection has room again (`write() === false` is
 *   waited for), so a client that does not read holds one frame and what the socket buffers, and its
 *   source stands still. It gets no heartbeats either: they would wait in that buffer too. What it
 *   holds is charged to its caller, and it is cut when nothing leaves for UNREAD_LIMIT_MS.
 * - A client that keeps up never makes the source wait; so the others get a turn of the event loop
 *   every few milliseconds.
 * - An error later cannot change the status: it is sent as the last event, and the stream ends as
 *   streams do. One that is cut off without it was cut off by the network.
 * - The source is given up by its `return`, which runs its `finally`. A source that waits for something
 *   does not see that: it must also watch the signal of the context, which is aborted when the client
 *   leaves and, with a ServiceError for a reason, when the service stops.
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
  /** From one write to the comment that says the stream lives. */
  readonly heartbeatMs: number;
  /** What an error after the first frame is told with; without it an event named `error`. */
  readonly failure?: (error: ServiceError) => SseFrame;
}

const HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  "x-accel-buffering": "no", // nginx would collect the stream and pass it on in blocks of 4 or 8 KiB.
};

/** Between these, by chance: clients of a service that restarts do not all come back at once. */
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 2_000;

/** What a client that does not read may take of a stop, before its connection is cut. */
const LAST_WRITE_LIMIT_MS = 1_000;

/**
 * Resolves when the stream is over and the source has run its `finally`. Rejects, having answered
 * nothing, with what the source throws before its first frame: the route hands that on.
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
  /** Nothing more can be sent. */
  hasEnded = false;
  /** The last byte has left, or the connection is gone. */
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
    // Of a client that left while the first frame was made, this is already past.
    if (reply.raw.closed) onClose();
    else reply.raw.once("close", onClose).on("drain", () => this.#room?.resolve());
  }

  /** From here on the answer is ours: no hook of the framework sees what is sent. */
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

  /** Resolves when there is room for the next. */
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

  /** What is no ServiceError is a defect. */
  fail(cause: unknown): void {
    const error = ServiceError.from(cause);
    if (error.code === "internal" && !isAbort(cause)) {
      this.#options.log.error({ err: error }, "event stream failed");
    }
    this.end((this.#options.failure ?? errorEvent)(error));
  }

  /** A connection would be kept for further requests, which a service that stops does not take. */
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
   * Node makes bytes of a text, and holds them until they have left; of bytes it makes no others. For a
   * text it takes three bytes a character for that, whatever they are.
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

/** Below it a text that Node makes bytes of costs less than a Buffer. */
const LARGE_TEXT_CHARS = 16 * 1024;

const PING: SseFrame = { comment: "ping" };

function errorEvent(error: ServiceError): SseFrame {
  const { retryAfterMs: retryMs } = error;
  const data = JSON.stringify(problemOf(error));
  const retry = retryMs === undefined ? {} : { retryMs };
  // The number that the client has may be another row's by now: it comes back to the beginning.
  const id = error.reason === "CURSOR_BEYOND_HEAD" ? { id: "0" } : {};
  return { event: "error", data, ...id, ...retry };
}

/** What timers and streams of Node reject with when their signal is aborted. */
function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}
