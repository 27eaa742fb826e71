import type { Server, TlsOptions } from "node:tls";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../observability/log.ts";
import type { ServerName, TransportMetrics } from "../observability/transport-metrics.ts";
import type { TlsMaterial } from "./tls-material.ts";

/** From the connection to the end of the handshake; Node's own limit is two minutes. */
const HANDSHAKE_LIMIT_MS = 10_000;
/** Anyone can make handshakes fail at any rate: one log line per this time. */
const FAILED_LINE_MS = 60_000;

export interface TlsServerParts {
  readonly material: TlsMaterial;
  readonly log: Log;
  readonly metrics: Pick<TransportMetrics, "tlsHandshakesFailed">;
  readonly clock: Clock;
}

/** Options of a server that has no certificate yet. */
export function tlsServerOptions({ asksClients }: TlsMaterial): TlsOptions {
  return {
    handshakeTimeout: HANDSHAKE_LIMIT_MS,
    requestCert: asksClients,
    rejectUnauthorized: asksClients,
  };
}

/** Gives the server its certificate, now and after each change; open connections stay. */
export function serveTls(server: Server, name: ServerName, parts: TlsServerParts): void {
  const { material, log, metrics, clock } = parts;
  server.setSecureContext(material.secureContextOptions);
  material.onChange(() => server.setSecureContext(material.secureContextOptions));
  let unsaid = 0;
  let saidMs = Number.NEGATIVE_INFINITY;
  // HTTP's own listener takes a failed handshake for a broken request, and answers in HTTP.
  server.removeAllListeners("tlsClientError");
  server.on("tlsClientError", (error, socket) => {
    socket.destroy(); // Otherwise a handshake that took too long would continue.
    metrics.tlsHandshakesFailed.inc({ server: name });
    unsaid += 1;
    const nowMs = clock.monotonicMs();
    if (nowMs - saidMs < FAILED_LINE_MS) return;
    const code = "code" in error ? error.code : undefined;
    log.info({ server: name, handshakes: unsaid, code }, "TLS handshakes failed");
    saidMs = nowMs;
    unsaid = 0;
  });
}
