/**
 * A caller that makes the service hold memory or a place and then does not move, in its own thread. It
 * reports how its calls began, stays until it is told to leave, and reports how they ended.
 */
import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { parentPort, workerData } from "node:worker_threads";
import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { PushSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import {
  ListSessionEventsRequestSchema,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { ClaimTurnRequestSchema } from "@session-ledger/proto/ambient/v1/turns_pb";
import { API, type HoldingOrder, LARGE, REPLAY, spreadSession, type Way } from "./holding.ts";
import { frame } from "./http2-frames.ts";
import { pace } from "./eventually.ts";

const SERVICE = "/ambient.v1.SessionService";
/** Half of a request whose rest never arrives; below the bytes that the service always reads. */
const SMALL_REQUEST_BYTES = 48_000;
const CALLS_A_CONNECTION = 100;
/** More than the headers of an event stream, and less than a row. */
const FIRST_ROW_BYTES = 10_000;
/** Calls on one gRPC connection for few connections. */
const CALLS_MANY = 900;

interface Body {
  readonly body?: string | Buffer;
  /** False: one byte is missing for ever. */
  readonly isWhole?: boolean;
  /** True: the answer is read. */
  readonly reads?: boolean;
  /** Bytes of an accepted answer that are read before it counts as begun. */
  readonly readBytes?: number;
}

class Holder {
  readonly order: HoldingOrder;
  readonly ends: Record<string, number> = {};
  sentBytes = 0;
  readonly #sessions: ClientHttp2Session[] = [];
  readonly #sockets: Socket[] = [];

  constructor(order: HoldingOrder) {
    this.order = order;
  }

  get report() {
    const connections = this.#sessions.length + this.#sockets.length;
    return { ends: { ...this.ends }, sentBytes: this.sentBytes, connections };
  }

  /** `windowBytes` is the part of each answer that the service may send unasked. */
  session({ windowBytes = 65_535 }: { readonly windowBytes?: number } = {}): ClientHttp2Session {
    const session = connectHttp2(`http://${this.order.grpcAddress}`, {
      settings: { initialWindowSize: windowBytes },
      maxSessionMemory: 1_000,
    });
    session.on("error", () => undefined);
    this.#sessions.push(session);
    return session;
  }

  /**
   * Resolves when the answer begins, or when all of an unfinished request is sent. Such a request may be
   * refused before that. Its stream then does not close, because nothing reads it. The headers of a watch
   * arrive before its rows are read, so a watch of rows begins with its first row.
   */
  async call(
    session: ClientHttp2Session,
    method: string,
    {
      message,
      ends,
      beginsWith = "response",
    }: {
      readonly message: Buffer;
      readonly ends: "both" | "answer" | "none";
      /** `sent`: the call has no answer for long. */
      readonly beginsWith?: "response" | "readable" | "sent";
    },
  ): Promise<void> {
    const stream = session.request({
      [constants.HTTP2_HEADER_METHOD]: "POST",
      [constants.HTTP2_HEADER_PATH]: `${SERVICE}/${method}`,
      [constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc",
      [constants.HTTP2_HEADER_TE]: "trailers",
      authorization: `Bearer ${this.order.token}`,
    });
    stream.on("error", () => undefined);
    const closed = new Promise<void>((resolve) => stream.once("close", () => resolve()));
    const opened = new Promise<void>((resolve) =>
      stream.once(beginsWith === "sent" ? "response" : beginsWith, () => resolve()),
    );
    stream.once("response", (headers) => this.#count(headers["grpc-status"] ?? "begun"));
    stream.on("trailers", (headers) => this.#count(headers["grpc-status"] ?? "ended"));
    this.sentBytes += message.length;
    const sent = new Promise<void>((resolve) => stream.write(message, () => resolve()));
    if (ends === "both") stream.end();
    const beginsWhenSent = ends === "none" || beginsWith === "sent";
    await Promise.race([opened, closed, ...(beginsWhenSent ? [sent] : [])]);
  }

  /** Resolves when the answer begins, of which no more is read, or when the connection ends. */
  async request(
    line: string,
    { body = "", isWhole = true, reads = false, readBytes = 0 }: Body,
  ): Promise<void> {
    const [host = "", port] = this.order.httpAddress.split(":");
    const socket = connect({ host, port: Number(port) });
    this.#sockets.push(socket);
    const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    socket.on("error", () => undefined);
    const opened = new Promise<void>((resolve) => {
      socket.once("data", (chunk) => {
        const status = /^HTTP\/1.1 (\d+)/.exec(chunk.toString("latin1"))?.[1] ?? "no status";
        this.#count(status);
        const begin = (piece = chunk): void => {
          // A stream without room ends with an error event, in a last piece of chunked coding.
          const hasEnded = piece.toString("latin1").endsWith("0\r\n\r\n");
          if (socket.bytesRead < readBytes && status === "200" && !hasEnded) return;
          if (!reads) socket.pause();
          resolve();
        };
        socket.on("data", begin);
        begin();
      });
    });
    const missing = isWhole ? 0 : 1;
    const head = [
      `${line} HTTP/1.1`,
      "host: localhost",
      `authorization: Bearer ${this.order.token}`,
      ...(body.length === 0
        ? []
        : ["content-type: application/json", `content-length: ${body.length + missing}`]),
    ];
    socket.write(`${head.join("\r\n")}\r\n\r\n`);
    this.sentBytes += body.length;
    const sent = new Promise<void>((resolve) => socket.write(body, () => resolve()));
    await Promise.race([isWhole ? opened : sent, closed]);
  }

  close(): void {
    for (const session of this.#sessions) session.destroy();
    for (const socket of this.#sockets) socket.destroy();
  }

  #count(end: unknown): void {
    const name = typeof end === "string" && /^\d{1,2}$/.test(end) ? `grpc ${end}` : String(end);
    this.ends[name] = (this.ends[name] ?? 0) + 1;
  }
}

function messageOf<T extends DescMessage>(schema: T, fields: MessageInitShape<T>): Buffer {
  return frame(toBinary(schema, create(schema, fields)));
}

/** Spread over HTTP/2 sessions with `perSession` calls each, `atOnce` of which begin together. */
function onSessions(
  holder: Holder,
  {
    perSession,
    atOnce = perSession,
    windowBytes,
  }: { readonly perSession: number; readonly atOnce?: number; readonly windowBytes?: number },
  begin: (session: ClientHttp2Session, at: number) => Promise<void>,
): Promise<unknown> {
  const { calls } = holder.order;
  const options = windowBytes === undefined ? {} : { windowBytes };
  const running = Array.from({ length: Math.ceil(calls / perSession) }, (_, nth) => {
    const session = holder.session(options);
    const end = Math.min(calls, (nth + 1) * perSession);
    let next = nth * perSession;
    const oneByOne = async (): Promise<void> => {
      while (next < end && !session.destroyed) await begin(session, next++);
    };
    return Array.from({ length: atOnce }, oneByOne);
  });
  return Promise.all(running.flat());
}

function onSockets(holder: Holder, begin: (at: number) => Promise<void>): Promise<unknown> {
  return Promise.all(Array.from({ length: holder.order.calls }, (_, at) => begin(at)));
}

/** Of the RUN_STARTED of a claim that waits. */
const RUN_STARTED_BYTES = 900_000;
/** As long as a claim may wait. */
const CLAIM_SECONDS = 60n;

const HOLD: Readonly<Record<Way, (holder: Holder) => Promise<unknown>>> = {
  "unread transcripts": (holder) =>
    onSockets(holder, () => holder.request(`GET ${API}/sessions/${LARGE}/transcript`, {})),
  "unary answers on closed windows": (holder) => {
    const message = messageOf(ListSessionEventsRequestSchema, { sessionId: LARGE, pageSize: 1 });
    // More at once would be refused: the database does not read that many pages at the same time.
    return onSessions(holder, { perSession: CALLS_MANY, atOnce: 8, windowBytes: 0 }, (session) =>
      holder.call(session, "ListSessionEvents", { message, ends: "both" }),
    );
  },
  "bodies that do not end": (holder) => {
    const body = Buffer.alloc(holder.order.bodyBytes, " ");
    return onSockets(holder, () =>
      holder.request(`POST ${API}/sessions/hostile/messages`, { body, isWhole: false }),
    );
  },
  "unread watches": (holder) =>
    onSessions(holder, { perSession: 1 }, (session, at) => watch(holder, session, at)),
  "unread event streams": (holder) =>
    onSockets(holder, (at) =>
      holder.request(`GET ${API}/sessions/${spreadSession(at)}/events?after_seq=0`, {
        readBytes: FIRST_ROW_BYTES,
      }),
    ),
  "requests that do not end": (holder) => {
    const message = frame(Buffer.alloc(SMALL_REQUEST_BYTES + 1)).subarray(0, SMALL_REQUEST_BYTES);
    return onSessions(holder, { perSession: CALLS_A_CONNECTION, atOnce: 1 }, (session) =>
      holder.call(session, "PushSessionEvent", { message, ends: "none" }),
    );
  },
  "idle watches": (holder) =>
    onSessions(holder, { perSession: CALLS_MANY }, (session, at) => watch(holder, session, at)),
  "idle push streams": (holder) =>
    onSessions(holder, { perSession: CALLS_MANY }, (session, at) => {
      const open = { case: "open", value: { sessionId: `hostile-idle-${at}` } } as const;
      const message = messageOf(PushSessionEventsRequestSchema, { frame: open });
      return holder.call(session, "PushSessionEvents", { message, ends: "answer" });
    }),
  "unread exports": (holder) =>
    onSockets(holder, () => holder.request(`GET ${API}/sessions/${LARGE}/export`, {})),
  "replays that follow": (holder) =>
    onSockets(holder, (at) =>
      holder.request(`POST /agui/sessions/${spreadSession(at)}?${REPLAY}`, {
        body: "{}",
        reads: true,
      }),
    ),
  "waiting claims": (holder) =>
    onSessions(holder, { perSession: CALLS_A_CONNECTION }, (session, at) => {
      const note = "x".repeat(RUN_STARTED_BYTES);
      const runStarted = JSON.stringify({ type: "RUN_STARTED", runId: "r", metadata: { note } });
      const wait = { seconds: CLAIM_SECONDS };
      const sessionId = `hostile-claim-${at}`;
      const message = messageOf(ClaimTurnRequestSchema, { sessionId, runStarted, wait });
      return holder.call(session, "ClaimTurn", { message, ends: "both", beginsWith: "sent" });
    }),
};

/** `idle watches` wait at the head of empty sessions; all others have unread rows. */
function watch(holder: Holder, session: ClientHttp2Session, at: number): Promise<void> {
  const isIdle = holder.order.way === "idle watches";
  const sessionId = isIdle ? `hostile-idle-${at % 64}` : spreadSession(at);
  const message = messageOf(WatchSessionEventsRequestSchema, { sessionId });
  const beginsWith = isIdle ? "response" : "readable";
  return holder.call(session, "WatchSessionEvents", { message, ends: "both", beginsWith });
}

async function obey(order: HoldingOrder): Promise<void> {
  const holder = new Holder(order);
  const left = new Promise((resolve) => parentPort?.once("message", resolve));
  await Promise.race([HOLD[order.way](holder), pace(order.openLimitMs)]);
  parentPort?.postMessage(holder.report);
  await left;
  holder.close();
  parentPort?.postMessage(holder.report);
}

await obey(workerData);
