import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { ErrorEvent, EventSource } from "eventsource";
import { eventually } from "./eventually.ts";
import { type Budget, CallMemory } from "../../src/base/budget.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { type Duplex, duplexPair } from "node:stream";
import { fastify, type FastifyInstance } from "fastify";
import { ServiceError } from "@session-ledger/base/errors";
import { statusOf } from "../../src/http/plumbing/problem.ts";
import {
  type EventStreamOptions,
  sendEventStream,
  type SseFrame,
  UnsentFrames,
} from "../../src/http/sse.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

// Followers of a session over HTTP: an EventSource that records its events, and a raw socket.

export const API = "/api/ambient/v1";

export interface Given {
  readonly id: string;
  readonly data: string;
}

/** Reconnects by itself when it loses the stream, as a page in a browser does. */
export class Following {
  /** Events without a name. */
  readonly given: Given[] = [];
  /** Events with a name. */
  readonly named: (Given & { readonly name: string })[] = [];
  /** The number of accepted connections. */
  opened = 0;
  /** The status of its last refusal. */
  refusedWith: number | undefined;
  readonly #source: EventSource;

  constructor(url: string) {
    this.#source = new EventSource(url);
    this.#source.addEventListener("open", () => (this.opened += 1));
    this.#source.addEventListener("message", ({ data, lastEventId: id }) => {
      this.given.push({ id, data: String(data) });
    });
    for (const name of ["error", "watch_state"]) {
      this.#source.addEventListener(name, (event: Event) => {
        if (event instanceof MessageEvent) {
          this.named.push({ name, data: String(event.data), id: event.lastEventId });
        } else if (event instanceof ErrorEvent) {
          this.refusedWith = event.code;
        }
      });
    }
  }

  get ids(): readonly string[] {
    return this.given.map(({ id }) => id);
  }

  /** True after it has given up. */
  get isClosed(): boolean {
    return this.#source.readyState === this.#source.CLOSED;
  }

  async untilOpened(times = 1): Promise<void> {
    await eventually(() => {
      if (this.opened < times) throw new Error(`opened ${this.opened} of ${times} times`);
    });
  }

  async until(count: number): Promise<void> {
    await eventually(() => {
      if (this.given.length < count) throw new Error(`${this.given.length} of ${count} events`);
    });
  }

  close(): void {
    this.#source.close();
  }
}

/** A request on a raw socket, of which nothing is read at first. */
export async function ask(
  address: string,
  path: string,
  { version = "1.1", headers = [] as readonly string[] } = {},
): Promise<Socket> {
  const url = new URL(`http://${address}`);
  const socket = connect(Number(url.port), url.hostname);
  await once(socket, "connect");
  socket.on("error", () => undefined);
  const lines = [`GET ${path} HTTP/${version}`, `Host: ${address}`, ...headers, "", ""];
  socket.write(lines.join("\r\n"));
  return socket;
}

// A stream of server-sent events between a real HTTP server and a real client, without a port.

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
  { memory: budget, ...options }: Partial<EventStreamOptions> & { readonly memory?: Budget } = {},
): Promise<Streaming> {
  const log: string[] = [];
  const metrics = createMetrics();
  const controller = new AbortController();
  const { signal } = controller;
  let cut = (): void => undefined;
  const context = {
    signal,
    principal: ANONYMOUS,
    memory: budget && new CallMemory(budget, {}, { end: () => cut() }),
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
  const open = (): Duplex => {
    const [client, server] = duplexPair();
    app.server.emit("connection", server);
    return client;
  };
  return {
    app,
    log,
    controller,
    connect: open,
    async openStreams() {
      const [value] = (await metrics.sseStreams.get()).values;
      return value?.value ?? 0;
    },
    get: (method = "GET") =>
      httpRequest({ method, path: "/stream/1", createConnection: open }).end(),
  };
}

export async function answerTo(sent: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  sent.once("response", resolve).once("error", reject);
  return promise;
}

/** All text received so far. */
export class Received {
  text = "";
  hasEnded = false;

  constructor(stream: NodeJS.ReadableStream) {
    stream.setEncoding("utf8");
    stream.on("data", (chunk: string) => (this.text += chunk));
    stream.once("end", () => (this.hasEnded = true));
    stream.on("error", () => undefined); // What came before it is what a test looks at.
  }
}
