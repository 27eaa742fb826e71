import type { ServerResponse } from "node:http";
import { Socket } from "node:net";

/** The limits of one caller before a route runs. */
export interface HttpLimits {
  /** Bytes of the request line and all headers. */
  readonly headerBytesMax: number;
  /** The time from the first byte of a request to the end of its headers … */
  readonly headersLimitMs: number;
  /** … and to the end of its body. An answer may take any time: these limits do not end streams. */
  readonly requestLimitMs: number;
  /** The time that a connection without a request is kept. */
  readonly keepAliveMs: number;
  /** The interval at which the two limits above are checked. */
  readonly checkIntervalMs: number;
}

export const HTTP_LIMITS: HttpLimits = {
  // Node's default. Our longest path is under 1 KiB; tokens and proxies' headers need the rest.
  headerBytesMax: 16 * 1024,
  headersLimitMs: 10_000,
  // 4 MiB, the default limit of a request, within this time is 70 KiB/s.
  requestLimitMs: 60_000,
  // Above the 60 s after which load balancers (AWS, nginx) close an idle connection: the side that
  // may still send must be the one that closes.
  keepAliveMs: 72_000,
  checkIntervalMs: 1_000,
};

/** Closes the connection when no byte of the answer leaves for `limitMs`; 0 removes the limit. */
export function limitUnread({ socket }: ServerResponse, limitMs: number): void {
  if (socket instanceof Socket) socket.setTimeout(limitMs);
}

/** The longest time that a stream continues after its token has expired, or was removed. */
export const TOKEN_CHECK_INTERVAL_MS = 1_000;

/**
 * Each stream takes a connection, and streams are limited as watchers; this number more is for
 * other requests.
 */
export const CONNECTIONS_BESIDE_STREAMS_MAX = 1_024;
