/**
 * The HTTP server below the framework: its address, its limits, and its answers, as problems, to
 * bytes that never become a request.
 */
import {
  createServer,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import { createServer as createTlsServer } from "node:https";
import { Socket } from "node:net";
import { codeOf, type ServiceError } from "@session-ledger/base/errors";
import {
  countConnections,
  listen,
  type ListenerParts,
  SERVERS,
  serveTls,
  tlsServerOptions,
} from "../../transport/listen.ts";
import type { TlsMaterial } from "../../transport/watched-files.ts";
import { HttpRefusal, PROBLEM_TYPE, problemOf, statusOf } from "./problem.ts";

/** Requests of one connection that wait for their answers; few clients send a second one early. */
const UNANSWERED_MAX = 16;

export interface HttpListenerOptions {
  readonly limits: HttpLimits;
  readonly connectionsMax: number;
}

export interface HttpListenerParts extends ListenerParts {
  /** Called when bytes were refused before they became a request. */
  readonly onRefused: (error: ServiceError) => void;
}

export class HttpListener {
  readonly server: Server;
  /** The current or last answer of each connection. */
  readonly #answers = new WeakMap<Socket, ServerResponse>();
  readonly #unanswered = new WeakMap<Socket, number>();
  readonly #parts: HttpListenerParts;
  #handle: RequestListener | undefined;

  constructor(parts: HttpListenerParts, options: HttpListenerOptions) {
    this.#parts = parts;
    this.server = newServer(parts.tls, options, (request, response) => {
      this.#answers.set(request.socket, response);
      if (this.#canAccept(request.socket, response)) this.#handle?.(request, response);
    });
    countConnections(this.server, "http", parts.metrics);
    this.server.maxConnections = options.connectionsMax;
    this.server.on("checkExpectation", (_request, response) => this.#refuseExpectation(response));
  }

  /** In the form the framework wants; the framework makes the handler. */
  serving(handle: RequestListener): Server {
    this.#handle = handle;
    return this.server;
  }

  /** Resolves with the bound address. */
  listen(options: { readonly address: string; readonly isShared: boolean }): Promise<string> {
    serveTls(this.server, "http", this.#parts);
    return listen(this.server, { ...options, what: SERVERS.http });
  }

  /** Node emits every request in a packet at once, even a thousand, without waiting for answers. */
  #canAccept(socket: Socket, response: ServerResponse): boolean {
    const unanswered = (this.#unanswered.get(socket) ?? 0) + 1;
    this.#unanswered.set(socket, unanswered);
    response.once("close", () => {
      this.#unanswered.set(socket, (this.#unanswered.get(socket) ?? 0) - 1);
    });
    if (unanswered <= UNANSWERED_MAX) return true;
    if (!socket.destroyed) {
      this.#parts.metrics.connectionsClosed.inc({ server: "http", why: "flood" });
      socket.destroy();
    }
    return false;
  }

  /** For errors of the parser, and for late requests. */
  refuse(cause: Error, socket: unknown): void {
    if (!isSocket(socket)) return;
    const answer = this.#answers.get(socket);
    const error = refusalOf(cause);
    // In the middle of an answer the client would read an error as part of it.
    const isMidAnswer = answer !== undefined && answer.headersSent && !answer.writableFinished;
    if (["ECONNRESET", "EPIPE"].includes(codeOf(cause)) || !socket.writable || isMidAnswer) {
      socket.destroy();
      return;
    }
    this.#parts.onRefused(error);
    socket.end(rawAnswer(error), () => socket.destroy());
  }

  #refuseExpectation(response: ServerResponse): void {
    const error = new HttpRefusal(417, "Expect may only say 100-continue");
    this.#parts.onRefused(error);
    response.shouldKeepAlive = false;
    response.writeHead(statusOf(error), { "content-type": PROBLEM_TYPE, ...SAFE });
    response.end(bodyOf(error));
  }
}

function newServer(
  tls: TlsMaterial | undefined,
  { limits }: HttpListenerOptions,
  handle: RequestListener,
): Server {
  const options = {
    maxHeaderSize: limits.headerBytesMax,
    headersTimeout: limits.headersLimitMs,
    requestTimeout: limits.requestLimitMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: limits.checkIntervalMs,
    requireHostHeader: false, // Node would answer without a body; a hook answers with one.
  };
  return tls === undefined
    ? createServer(options, handle)
    : createTlsServer({ ...options, ...tlsServerOptions(tls) }, handle);
}

/** The headers of every answer. */
export const SAFE = { "cache-control": "no-store", "x-content-type-options": "nosniff" } as const;

/** Codes of Node's HTTP parser: https://nodejs.org/api/errors.html and llhttp's HPE_*. */
function refusalOf(cause: Error): HttpRefusal {
  const code = codeOf(cause);
  if (code === "HPE_HEADER_OVERFLOW") {
    return new HttpRefusal(431, "the request line and headers are too large", {
      reason: "REQUEST_TOO_LARGE",
    });
  }
  if (code === "ERR_HTTP_REQUEST_TIMEOUT")
    return new HttpRefusal(408, "the request did not arrive in time");
  return new HttpRefusal(400, "this is no HTTP request");
}

function rawAnswer(error: HttpRefusal): string {
  const body = bodyOf(error);
  const headers = {
    connection: "close",
    "content-type": PROBLEM_TYPE,
    "content-length": Buffer.byteLength(body),
    ...SAFE,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const status = `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ""}\r\n`;
  return `${status}${lines.join("")}\r\n${body}`;
}

function bodyOf(error: ServiceError): string {
  return JSON.stringify(problemOf(error));
}

function isSocket(socket: unknown): socket is Socket {
  return typeof socket === "object" && socket !== null && "writable" in socket;
}

export type HttpLimits = typeof HTTP_LIMITS;

/** The limits of one caller before a route runs. */
export const HTTP_LIMITS = {
  /**
   * Bytes of the request line and all headers: Node's default. Our longest path is under 1 KiB; tokens
   * and proxies' headers need the rest.
   */
  headerBytesMax: 16 * 1024,
  /** The time from the first byte of a request to the end of its headers … */
  headersLimitMs: 10_000,
  /**
   * … and to the end of its body. 4 MiB, the default limit of a request, within this time is 70 KiB/s.
   * An answer may take any time: these limits do not end streams.
   */
  requestLimitMs: 60_000,
  /**
   * The time that a connection without a request stays open. Above the 60 s of load balancers (AWS,
   * nginx): the side that may still send must close.
   */
  keepAliveMs: 72_000,
  /** The interval at which the limits of headers and requests are checked. */
  checkIntervalMs: 1_000,
};

/** Closes the connection when no byte of the answer leaves for `limitMs`; 0 removes the limit. */
export function limitUnread({ socket }: ServerResponse, limitMs: number): void {
  if (socket instanceof Socket) socket.setTimeout(limitMs);
}

/** The longest time that a stream continues after its token has expired, or was removed. */
export const TOKEN_CHECK_INTERVAL_MS = 1_000;

/** Streams are limited as watchers, and each takes a connection; these are for other requests. */
export const CONNECTIONS_WITHOUT_STREAM_MAX = 1_024;
