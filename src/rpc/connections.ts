import {
  constants,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { CallerMemory } from "../auth/caller-memory.ts";
import type { FairShare } from "../base/fair-share.ts";
import type { TransportMetrics } from "../observability/transport-metrics.ts";
import { headersAreTooLarge, type Http2Hooks } from "./http2.ts";
import { Arriving } from "./incoming/arriving.ts";
import type { Arrived, RequestParts } from "./incoming/one-request.ts";
import { preparedHeaders } from "./incoming/request-headers.ts";
import { Unpacking } from "./incoming/unpacking.ts";

/** From the connection, or the end of its TLS handshake, to the client's first SETTINGS. */
const PREFACE_LIMIT_MS = 5_000;
/**
 * Calls with too large headers on one connection, from a client that has not confirmed our
 * SETTINGS; one more such call closes the connection.
 */
const TOO_LARGE_MAX = 100;

export interface ConnectionsOptions {
  readonly requestBytesMax: number;
}

/** Watches the connections and calls of the HTTP/2 server, below grpc-js. */
export class Connections implements Http2Hooks {
  readonly incoming: RequestParts;
  readonly #metrics: Pick<TransportMetrics, "connectionsClosed" | "receivedBytes">;
  readonly #memory: FairShare;
  readonly #arriving = new Arriving();
  readonly #tooLarge = new WeakMap<Http2Session, number>();
  #arrived: Arrived | undefined;

  constructor(
    metrics: Pick<TransportMetrics, "connectionsClosed" | "receivedBytes">,
    memory: CallerMemory,
    { requestBytesMax }: ConnectionsOptions,
  ) {
    this.#metrics = metrics;
    this.#memory = memory.all;
    const unpacking = new Unpacking({ bytesMax: requestBytesMax });
    this.incoming = {
      memory,
      arriving: this.#arriving,
      unpacking,
      cut: (stream) => this.#cut(stream),
    };
  }

  /** The call that grpc-js begins at this moment. */
  taken(): Arrived {
    const arrived = this.#arrived;
    if (arrived === undefined) throw new Error("a call began without a stream");
    this.#arrived = undefined;
    return arrived;
  }

  tick(): void {
    this.#memory.tick();
    this.#arriving.tick({ isPressed: this.#memory.isFull });
    this.#metrics.receivedBytes.set(this.#memory.held);
  }

  session(session: ServerHttp2Session): void {
    const timer = setTimeout(() => {
      this.#metrics.connectionsClosed.inc({ server: "grpc", why: "preface" });
      session.destroy();
    }, PREFACE_LIMIT_MS);
    session.once("remoteSettings", () => clearTimeout(timer));
    session.once("close", () => clearTimeout(timer));
  }

  stream(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
  ): void {
    const isTooLarge = headersAreTooLarge(rawHeaders);
    this.#arrived = { stream, isTooLarge, encoding: preparedHeaders(headers, rawHeaders) };
  }

  /**
   * Resets a call whose headers are too large, as Node does once the client has confirmed our
   * SETTINGS.
   */
  resetTooLarge(stream: ServerHttp2Stream): void {
    const { session } = stream;
    if (session === undefined) return;
    const calls = (this.#tooLarge.get(session) ?? 0) + 1;
    this.#tooLarge.set(session, calls);
    if (calls > TOO_LARGE_MAX) this.#cut(stream);
    else stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  #cut({ session }: ServerHttp2Stream): void {
    if (session === undefined || session.destroyed) return;
    this.#metrics.connectionsClosed.inc({ server: "grpc", why: "flood" });
    session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}
