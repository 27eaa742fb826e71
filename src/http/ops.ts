/**
 * The private port: is it alive, can it work, what has it counted. No session data, no payload, so it
 * may listen on any address. Plain node:http, because three answers to GET need no framework.
 *
 *   /healthz   200 while the process answers
 *   /readyz    200 when pushes can be committed, else 503 and what is missing
 *   /metrics   Prometheus text
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/lifecycle.ts";
import type { Metrics } from "../observability/metrics.ts";

/** A probe or a scrape sends a few hundred bytes at once; whoever takes longer is neither. */
const REQUEST_LIMIT_MS = 5_000;
const HEADER_BYTES_MAX = 8 * 1024;
const CONNECTIONS_MAX = 100;

export interface OpsServer extends Unit {
  /** `host:port`, once started with the port that was taken. */
  readonly address: string;
}

export interface OpsParts {
  readonly metrics: Pick<Metrics, "text" | "contentType">;
  /** What keeps the service from its work; empty when it is ready. */
  readonly missing: () => readonly string[];
}

export function createOpsServer(
  parts: OpsParts,
  options: { /** `host:port`; port 0 takes a free one. */ readonly address: string },
): OpsServer {
  const { host, port } = parse(options.address);
  const server = createServer(
    {
      requestTimeout: REQUEST_LIMIT_MS,
      headersTimeout: REQUEST_LIMIT_MS,
      maxHeaderSize: HEADER_BYTES_MAX,
    },
    (request, response) => void answer(parts, request, response),
  );
  server.maxConnections = CONNECTIONS_MAX;
  let { address } = options;
  return {
    get address() {
      return address;
    },
    async start() {
      const taken = await listen(server, { host, port });
      address = options.address.replace(/:\d+$/, `:${taken}`);
    },
    async stop() {
      if (!server.listening) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      server.close(() => resolve());
      server.closeAllConnections(); // A scraper's idle connection must not hold up the stop.
      await promise;
    },
  };
}

async function answer(
  { metrics, missing }: OpsParts,
  { method, url }: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (method !== "GET" && method !== "HEAD") {
    return reply(response, 405, "text/plain", "only GET and HEAD\n");
  }
  switch (url?.split("?", 1)[0]) {
    case "/healthz":
      return reply(response, 200, "text/plain", "ok\n");
    case "/readyz": {
      const waitsFor = missing();
      const body = JSON.stringify({ ready: waitsFor.length === 0, missing: waitsFor });
      return reply(response, waitsFor.length === 0 ? 200 : 503, "application/json", `${body}\n`);
    }
    case "/metrics":
      return reply(response, 200, metrics.contentType, await metrics.text());
    default:
      return reply(response, 404, "text/plain", "here are /healthz, /readyz and /metrics\n");
  }
}

function reply(response: ServerResponse, status: number, contentType: string, body: string): void {
  response.writeHead(status, {
    "content-type": contentType,
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
  });
  response.end(response.req.method === "HEAD" ? undefined : body);
}

function parse(address: string): { readonly host: string; readonly port: number } {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  return { host, port: Number(address.slice(colon + 1)) };
}

async function listen(server: Server, at: { host: string; port: number }): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen(at, resolve);
  try {
    await promise;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : "unknown";
    const message = `cannot listen on OPS_ADDRESS ${at.host}:${at.port}: ${why}`;
    throw new ServiceError("failed_precondition", "ADDRESS_TAKEN", message, { cause });
  } finally {
    server.off("error", reject);
  }
  const bound = server.address();
  return typeof bound === "object" && bound !== null ? bound.port : at.port;
}
