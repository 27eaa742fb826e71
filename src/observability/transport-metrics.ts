import { Counter, Gauge, type Registry } from "prom-client";

/** The names of the servers in metrics and log lines. */
export type ServerName = "grpc" | "http";

/** Metrics of connections, below any call. */
export interface TransportMetrics {
  readonly connections: Gauge<"server">;
  /**
   * `why`: limit, too many connections; preface, no HTTP/2 began; flood, a request in pieces of a
   * few bytes, or HTTP requests that did not wait for answers.
   */
  readonly connectionsClosed: Counter<"server" | "why">;
  readonly tlsHandshakesFailed: Counter<"server">;
  /** `outcome`: changed, failed. */
  readonly tlsReloads: Counter<"outcome">;
  /** Seconds since the epoch; absent without TLS. */
  readonly tlsExpiry: Gauge<"file">;
  /** Bytes held for callers, by both servers. */
  readonly receivedBytes: Gauge;
}

export function transportInstruments(registers: Registry[]): TransportMetrics {
  return {
    connections: new Gauge({
      name: "session_ledger_connections",
      help: "Open connections, by server (grpc, http).",
      labelNames: ["server"],
      registers,
    }),
    connectionsClosed: new Counter({
      name: "session_ledger_connections_closed_total",
      help: "Connections closed by the service, by server and reason (limit, preface, flood).",
      labelNames: ["server", "why"],
      registers,
    }),
    tlsHandshakesFailed: new Counter({
      name: "session_ledger_tls_handshakes_failed_total",
      help: "Failed or slow TLS handshakes, by server.",
      labelNames: ["server"],
      registers,
    }),
    tlsReloads: new Counter({
      name: "session_ledger_tls_reloads_total",
      help: "Changes of the files of TLS, by outcome (changed, failed).",
      labelNames: ["outcome"],
      registers,
    }),
    tlsExpiry: new Gauge({
      name: "session_ledger_tls_certificate_expiry_timestamp_seconds",
      help: "End of the served certificate, in seconds since the epoch.",
      labelNames: ["file"],
      registers,
    }),
    receivedBytes: new Gauge({
      name: "session_ledger_received_bytes",
      help: "Memory held for callers: requests, unstored events, unread answers and their rows.",
      registers,
    }),
  };
}
