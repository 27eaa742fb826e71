import type { ServerResponse } from "node:http";
import { Socket } from "node:net";

/** What one caller may take of the server before a route is asked. */
export interface HttpLimits {
  /** The request line and all headers. */
  readonly headerBytesMax: number;
  /** From the first byte of a request to the end of its headers … */
  readonly headersLimitMs: number;
  /** … and to the end of its body. An answer may take any time: streams are not cut by it. */
  readonly requestLimitMs: number;
  /** How long a connection without a request is kept. */
  readonly keepAliveMs: number;
  /** How often the two limits above are looked at. */
  readonly checkIntervalMs: number;
}

export const HTTP_LIMITS: HttpLimits = {
  // Node's default. The longest path of ours is under 1 KiB; tokens and proxies' headers need the rest.
  headerBytesMax: 16 * 1024,
  headersLimitMs: 10_000,
  // 4 MiB, the largest request by default, in that time is 70 KiB/s.
  requestLimitMs: 60_000,
  // Above the 60 s after which load balancers (AWS, nginx) let an idle connection go: the side that
  // may still send must be the one that closes.
  keepAliveMs: 72_000,
  checkIntervalMs: 1_000,
};

/** Closes the connection when nothing of the answer leaves for `limitMs`; 0 removes the limit. */
export function limitUnread({ socket }: ServerResponse, limitMs: number): void {
  if (socket instanceof Socket) socket.setTimeout(limitMs);
}

/** How long a stream may go on after its token has expired, or was taken away. */
export const TOKEN_CHECK_INTERVAL_MS = 1_000;

/** Streams take a connection each, and are limited as watchers; this many more are for the rest. */
export const CONNECTIONS_BESIDE_STREAMS_MAX = 1_024;
