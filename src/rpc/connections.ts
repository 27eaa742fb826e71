/**
 * Below grpc-js: its HTTP/2 server, its connections, and the headers of its calls. Only this file
 * uses private members of grpc-js, two; a missing one fails the start. A missing one of Node costs speed.
 */
import { EventEmitter } from "node:events";
import {
  constants,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import { setFlagsFromString } from "node:v8";
import type { Server } from "@grpc/grpc-js";
import type { TransportMetrics } from "../observability/metrics.ts";
import { RenewedMap } from "../base/renewed-map.ts";
import type { Encoding } from "./decompress.ts";
import type { IncomingCall } from "./serve.ts";

/** From the connection, or the end of its TLS handshake, to the client's first SETTINGS. */
const PREFACE_LIMIT_MS = 5_000;
/** Calls with too large headers on one connection, before the client has confirmed our SETTINGS. */
const TOO_LARGE_MAX = 100;

/**
 * Without this flag V8 makes some objects of a call in the old generation. These keep the other objects of
 * the call alive until the next full collection (decision 085).
 */
const YOUNG_OBJECTS = "--no-allocation-site-pretenuring";

/** Watches the connections and calls of the HTTP/2 server, below grpc-js. */
export class Connections {
  readonly #metrics: Pick<TransportMetrics, "connectionsClosed">;
  readonly #tooLarge = new WeakMap<Http2Session, number>();
  #arrived: IncomingCall | undefined;

  constructor(metrics: Pick<TransportMetrics, "connectionsClosed">) {
    this.#metrics = metrics;
  }

  /** Call this after `limitHttp2`, and before any connection. */
  watch(server: Server): void {
    const http2Servers: unknown = Reflect.get(server, "http2Servers");
    const [http2] = http2Servers instanceof Map ? http2Servers.keys() : [];
    if (!(http2 instanceof EventEmitter)) throw new Error("grpc-js has no HTTP/2 server");
    setFlagsFromString(YOUNG_OBJECTS);
    http2.on("session", (session: ServerHttp2Session) => this.#session(session));
    // Runs before grpc-js sees the stream, which then reads the changed headers.
    http2.prependListener(
      "stream",
      (
        stream: ServerHttp2Stream,
        headers: IncomingHttpHeaders,
        _flags: number,
        rawHeaders: readonly string[],
      ) => {
        const isTooLarge = headersAreTooLarge(rawHeaders);
        this.#arrived = { stream, isTooLarge, encoding: preparedHeaders(headers, rawHeaders) };
      },
    );
  }

  /** The call that grpc-js begins at this moment. */
  takeArrived(): IncomingCall {
    const arrived = this.#arrived;
    if (arrived === undefined) throw new Error("a call began without a stream");
    this.#arrived = undefined;
    return arrived;
  }

  #session(session: ServerHttp2Session): void {
    renewStreams(session);
    const timer = setTimeout(() => {
      this.#metrics.connectionsClosed.inc({ server: "grpc", why: "preface" });
      session.destroy();
    }, PREFACE_LIMIT_MS);
    session.once("remoteSettings", () => clearTimeout(timer));
    session.once("close", () => clearTimeout(timer));
  }

  /** As Node does once the client has confirmed our SETTINGS. */
  resetTooLarge(stream: ServerHttp2Stream): void {
    const { session } = stream;
    if (session === undefined) return;
    const calls = (this.#tooLarge.get(session) ?? 0) + 1;
    this.#tooLarge.set(session, calls);
    if (calls > TOO_LARGE_MAX) this.cut(stream);
    else stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  /** Ends the connection of a caller who attacks. */
  cut({ session }: ServerHttp2Stream): void {
    if (session === undefined || session.destroyed) return;
    this.#metrics.connectionsClosed.inc({ server: "grpc", why: "flood" });
    session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

/**
 * Replaces the Map in which Node has the streams of a new connection, in a private state. False: this version
 * of Node has another state.
 */
export function renewStreams(session: ServerHttp2Session): boolean {
  for (const key of Object.getOwnPropertySymbols(session)) {
    const state: unknown = Reflect.get(session, key);
    if (typeof state !== "object" || state === null || !("streams" in state)) continue;
    if (Reflect.get(Object(state.streams), "size") !== 0) continue;
    return Reflect.set(state, "streams", new RenewedMap());
  }
  return false;
}

/**
 * The limit for all headers of a call, as with HTTP/1.1. Node checks it only after the client has
 * confirmed our SETTINGS; headersAreTooLarge() checks the calls before that.
 */
const HEADER_BYTES_MAX = 16 * 1024;
const HEADERS_MAX = 128;
/** What SETTINGS_MAX_HEADER_LIST_SIZE counts per field besides name and value (RFC 9113, 6.5.2). */
const FIELD_BYTES = 32;
/** Settings in one frame; seven are in use. */
const SETTINGS_MAX = 16;
/** The connection ends after this many wrong frames, or streams above the limit. */
const INVALID_FRAMES_MAX = 100;
const REJECTED_STREAMS_MAX = 100;
/**
 * Streams that their caller opens and resets (CVE-2023-44487): this many at once, then per second,
 * before the connection ends. nghttp2's own values; a client that cancels many watches stays below.
 */
const STREAM_RESETS_BURST = 1_000;
const STREAM_RESETS_PER_SECOND = 33;

/** Call this before the server makes its HTTP/2 server. */
export function limitHttp2(server: Server): void {
  const options: unknown = Reflect.get(server, "commonServerOptions");
  if (typeof options !== "object" || options === null || !("settings" in options)) {
    throw new Error("grpc-js has no options");
  }
  const limits: ServerOptions = {
    settings: { ...Object(options.settings), maxHeaderListSize: HEADER_BYTES_MAX },
    maxHeaderListPairs: HEADERS_MAX,
    maxSettings: SETTINGS_MAX,
    maxSessionInvalidFrames: INVALID_FRAMES_MAX,
    maxSessionRejectedStreams: REJECTED_STREAMS_MAX,
    streamResetBurst: STREAM_RESETS_BURST,
    streamResetRate: STREAM_RESETS_PER_SECOND,
  };
  Object.assign(options, limits);
}

/** Each character of a raw header is one byte. */
function headersAreTooLarge(rawHeaders: readonly string[]): boolean {
  let bytes = (rawHeaders.length / 2) * FIELD_BYTES;
  for (const text of rawHeaders) bytes += text.length;
  return bytes > HEADER_BYTES_MAX;
}

const AUTHORIZATION = "authorization";
const ENCODING = "grpc-encoding";

/**
 * Corrects the headers of a call before grpc-js reads them, and returns the compression of its
 * messages. Node keeps the first of several `authorization` headers; here they become a list, which
 * grpc-js passes on. grpc-js would decompress any number of messages at once, so the headers state
 * no compression, and it passes on the bytes.
 */
export function preparedHeaders(
  headers: IncomingHttpHeaders,
  rawHeaders: readonly string[],
): Encoding | undefined {
  let values: string[] | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at] !== AUTHORIZATION) continue;
    const value = rawHeaders[at + 1] ?? "";
    if (values === undefined) values = [value];
    else if (!values.includes(value)) values.push(value);
  }
  if (values !== undefined && values.length > 1) Reflect.set(headers, AUTHORIZATION, values);
  const encoding = headers[ENCODING];
  if (encoding !== "gzip" && encoding !== "deflate") return undefined;
  headers[ENCODING] = "identity";
  return encoding;
}
