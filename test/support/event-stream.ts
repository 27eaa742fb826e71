/** A stream of server-sent events between a real HTTP server and a real client, without a port. */
import type { ConnectionMemory } from "../../src/auth/caller-memory.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { type Duplex, duplexPair } from "node:stream";
import { fastify, type FastifyInstance } from "fastify";
import { ServiceError } from "../../src/base/errors.ts";
import { statusOf } from "../../src/http/plumbing/problem.ts";
import {
  type EventStreamOptions,
  sendEventStream,
  type SseFrame,
  UnsentFrames,
} from "../../src/http/sse.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

/** The events that a test sends on a stream, and its outcome. */
export class Source implements AsyncIterable<SseFrame> {
  pulled = 0;
  /** True after its `finally` has run. */
  left = false;
  readonly #make: (at: number) => SseFrame | undefined | Promise<SseFrame | undefined>;

  /** Undefined ends it. */
  constructor(make: (at: number) => SseFrame | undefined | Promise<SseFrame | undefined>) {
    this.#make = make;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SseFrame> {
    try {
      for (let at = 0; ; at += 1) {
        const frame = await this.#make(at);
        if (frame === undefined) return;
        this.pulled += 1;
        yield frame;
      }
    } finally {
      this.left = true;
    }
  }
}

export interface Streaming {
  readonly app: FastifyInstance;
  readonly log: readonly string[];
  /** Aborts the signal of the calls, as a stop or the end of the connection does. */
  readonly controller: AbortController;
  readonly openStreams: () => Promise<number>;
  /** The client's end of a new connection. */
  readonly connect: () => Duplex;
  readonly get: (method?: "GET" | "HEAD") => ClientRequest;
}

export async function streaming(
  source: AsyncIterable<SseFrame>,
  {
    memory: connection,
    ...options
  }: Partial<EventStreamOptions> & { readonly memory?: ConnectionMemory } = {},
): Promise<Streaming> {
  const log: string[] = [];
  const metrics = createMetrics();
  const controller = new AbortController();
  const { signal } = controller;
  let cut = (): void => undefined;
  const context = {
    signal,
    principal: ANONYMOUS,
    memory: connection?.call(() => cut()),
    get hasEnded() {
      return signal.aborted;
    },
  };
  const app = fastify();
  app.setErrorHandler((error, _request, reply) =>
    reply.code(statusOf(ServiceError.from(error))).send(String(error)),
  );
  app.get("/stream/:id", async (_request, reply) => {
    cut = () => void reply.raw.destroy();
    void reply.header("x-of-a-hook", "kept");
    await sendEventStream(reply, context, source, {
      heartbeatMs: 60_000,
      metrics,
      unsent: new UnsentFrames(),
      log: createLogTo({ write: (line) => log.push(line) }),
      ...options,
    });
  });
  await app.ready();
  const connect = (): Duplex => {
    const [client, server] = duplexPair();
    app.server.emit("connection", server);
    return client;
  };
  return {
    app,
    log,
    controller,
    connect,
    async openStreams() {
      const [value] = (await metrics.sseStreams.get()).values;
      return value?.value ?? 0;
    },
    get: (method = "GET") =>
      httpRequest({ method, path: "/stream/1", createConnection: connect }).end(),
  };
}

export async function answerTo(request: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request.once("response", resolve).once("error", reject);
  return promise;
}

/** All text received so far. */
export class Received {
  text = "";
  hasEnded = false;

  constructor(stream: NodeJS.ReadableStream) {
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => (this.text += text));
    stream.once("end", () => (this.hasEnded = true));
    stream.on("error", () => undefined); // What came before it is what a test looks at.
  }
}
