/**
 * The layer below grpc-js: the HTTP/2 server that grpc-js makes and hides. This file uses two
 * private members of grpc-js, and no other file does. A missing member is detected when the server
 * is made, and not later.
 */
import { EventEmitter } from "node:events";
import type {
  IncomingHttpHeaders,
  ServerHttp2Session,
  ServerHttp2Stream,
  ServerOptions,
} from "node:http2";
import type { Server } from "@grpc/grpc-js";

/**
 * The limit for all headers of a call, as with HTTP/1.1. Node resets the stream of a call with
 * more, but only after the client has confirmed our SETTINGS; headersAreTooLarge() checks the calls
 * before that.
 */
const HEADER_BYTES_MAX = 16 * 1024;
const HEADERS_MAX = 128;
/**
 * The bytes that SETTINGS_MAX_HEADER_LIST_SIZE counts per field beside its name and value (RFC
 * 9113, 6.5.2).
 */
const FIELD_BYTES = 32;
/** Settings in one frame; seven are in use. */
const SETTINGS_MAX = 16;
/**
 * After this number of wrong frames, or of streams above the limit that were told to wait, the
 * connection ends.
 */
const INVALID_FRAMES_MAX = 100;
const REJECTED_STREAMS_MAX = 100;
/**
 * Streams that their caller opens and resets (CVE-2023-44487): this many at once, and then this
 * many per second, before the connection ends. The values are nghttp2's own. A client that cancels
 * many watches and late calls stays below them.
 */
const STREAM_RESETS_BURST = 1_000;
const STREAM_RESETS_PER_SECOND = 33;

export interface Http2Hooks {
  session(session: ServerHttp2Session): void;
  /** Called before grpc-js sees the stream; grpc-js reads the changes made to `headers`. */
  stream(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
  ): void;
}

/** Call this before the server makes its HTTP/2 server. */
export function limitHttp2(
  server: Server,
  { callsPerConnectionMax }: { readonly callsPerConnectionMax: number },
): void {
  const options: unknown = Reflect.get(server, "commonServerOptions");
  if (typeof options !== "object" || options === null) throw new Error("grpc-js has no options");
  const limits: ServerOptions = {
    settings: {
      maxConcurrentStreams: callsPerConnectionMax,
      maxHeaderListSize: HEADER_BYTES_MAX,
    },
    maxHeaderListPairs: HEADERS_MAX,
    maxSettings: SETTINGS_MAX,
    maxSessionInvalidFrames: INVALID_FRAMES_MAX,
    maxSessionRejectedStreams: REJECTED_STREAMS_MAX,
    streamResetBurst: STREAM_RESETS_BURST,
    streamResetRate: STREAM_RESETS_PER_SECOND,
  };
  Object.assign(options, limits);
}

/** Call this after that, and before any connection. */
export function watchHttp2(server: Server, hooks: Http2Hooks): void {
  const http2Servers: unknown = Reflect.get(server, "http2Servers");
  const [http2] = http2Servers instanceof Map ? http2Servers.keys() : [];
  if (!(http2 instanceof EventEmitter)) throw new Error("grpc-js has no HTTP/2 server");
  http2.on("session", (session: ServerHttp2Session) => hooks.session(session));
  http2.prependListener(
    "stream",
    (
      stream: ServerHttp2Stream,
      headers: IncomingHttpHeaders,
      _flags: number,
      rawHeaders: readonly string[],
    ) => hooks.stream(stream, headers, rawHeaders),
  );
}

/** Each character of a raw header is one byte. */
export function headersAreTooLarge(rawHeaders: readonly string[]): boolean {
  const fields = rawHeaders.length / 2;
  const bytes = rawHeaders.reduce((sum, text) => sum + text.length, fields * FIELD_BYTES);
  return bytes > HEADER_BYTES_MAX;
}
