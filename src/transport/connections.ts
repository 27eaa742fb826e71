import type { Server } from "node:net";
import type { ServerName, TransportMetrics } from "../observability/transport-metrics.ts";

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
