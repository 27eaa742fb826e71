/** What the servers of TCP connections share: their addresses, their counters, and TLS. */
import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { Server as TlsServer, type TlsOptions } from "node:tls";
import type { Clock } from "@session-ledger/base/clock";
import { codeOf, ServiceError } from "@session-ledger/base/errors";
import type { Log } from "../observability/log.ts";
import type { ServerName, TransportMetrics } from "../observability/metrics.ts";
import type { TlsMaterial } from "./watched-files.ts";

interface ServerAddress {
  /** `host:port`; port 0 takes a free port. An IPv6 address needs brackets. */
  readonly address: string;
  /** The name of the server in the error. */
  readonly what: string;
  /** Other processes of this service listen on the same port. */
  readonly isShared?: boolean;
}

/** The parts of a server of TCP connections that may be encrypted. */
export interface ListenerParts {
  /** Started before this server; without it nothing is encrypted. */
  readonly tls?: TlsMaterial | undefined;
  readonly log: Log;
  readonly metrics: TransportMetrics;
  readonly clock: Clock;
}

/** The servers of the service, as errors name them. */
export const SERVERS = {
  grpc: "gRPC (GRPC_ADDRESS)",
  http: "HTTP (HTTP_ADDRESS)",
  ops: "metrics and health (OPS_ADDRESS)",
} as const;

/** Fails as `listen` would, and leaves the address free. */
export async function checkFree(options: ServerAddress): Promise<void> {
  const server = createServer();
  await listen(server, options);
  await close(server);
}

/** For any server that takes TCP connections: resolves to the bound `host:port`. */
export async function listen(server: Server, options: ServerAddress): Promise<string> {
  const { address, isShared = false } = options;
  const separator = address.lastIndexOf(":");
  const host = address.slice(0, separator);
  const port = Number(address.slice(separator + 1));
  server.listen({ host: host.replace(/^\[(.*)\]$/, "$1"), port, reusePort: isShared });
  try {
    await once(server, "listening");
  } catch (cause) {
    throw cannotListen(options, cause);
  }
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("not a TCP server");
  return `${host}:${bound.port}`;
}

/** Takes no more connections; resolves when the last connection is closed. */
export function close(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  // The callback may get an error because the server does not listen; that state is correct here.
  server.close(() => resolve());
  return promise;
}

/** Counts the connections of a server, and the connections that its `maxConnections` refused. */
export function countConnections(
  server: Server,
  name: ServerName,
  metrics: Pick<TransportMetrics, "connections" | "connectionsClosed">,
): void {
  server.on("connection", (socket) => {
    metrics.connections.inc({ server: name });
    socket.once("close", () => metrics.connections.dec({ server: name }));
  });
  server.on("drop", () => metrics.connectionsClosed.inc({ server: name, why: "limit" }));
}

/** Anyone can make handshakes fail at any rate: one log line per this time. */
const FAILED_LINE_MS = 60_000;

/** Options of a server that has no certificate yet. */
export function tlsServerOptions({ asksClients }: TlsMaterial): TlsOptions {
  return {
    handshakeTimeout: 10_000, // Milliseconds; Node's own limit is two minutes.
    requestCert: asksClients,
    rejectUnauthorized: asksClients,
  };
}

/** Gives an encrypted server its certificate, now and after each change; open connections stay. */
export function serveTls(server: Server, name: ServerName, parts: ListenerParts): void {
  const { tls, log, metrics, clock } = parts;
  if (tls === undefined || !(server instanceof TlsServer)) return;
  server.setSecureContext(tls.secureContextOptions);
  tls.onChange(() => server.setSecureContext(tls.secureContextOptions));
  let unlogged = 0;
  let loggedMs = Number.NEGATIVE_INFINITY;
  // HTTP's own listener takes a failed handshake for a broken request, and answers in HTTP.
  server.removeAllListeners("tlsClientError");
  server.on("tlsClientError", (error, socket) => {
    socket.destroy(); // Otherwise a handshake that took too long would continue.
    metrics.tlsHandshakesFailed.inc({ server: name });
    unlogged += 1;
    const nowMs = clock.monotonicMs();
    if (nowMs - loggedMs < FAILED_LINE_MS) return;
    const code = codeOf(error) || undefined;
    log.info({ server: name, handshakes: unlogged, code }, "TLS handshakes failed");
    loggedMs = nowMs;
    unlogged = 0;
  });
}

function cannotListen({ address, what }: ServerAddress, cause: unknown): ServiceError {
  const isInUse = codeOf(cause) === "EADDRINUSE";
  const why = isInUse ? "the address is in use" : String(cause);
  const message = `${what} cannot listen on ${address}: ${why}`;
  const reason = isInUse ? "ADDRESS_TAKEN" : "INVALID_REQUEST";
  return new ServiceError("failed_precondition", reason, message, { cause });
}
