import { createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import {
  close,
  countConnections,
  listen,
  type ListenerParts,
  SERVERS,
  serveTls,
  tlsServerOptions,
} from "../transport/listen.ts";
import type { TlsMaterial } from "../transport/watched-files.ts";

export interface GrpcListenerParts extends ListenerParts {
  /** Called for a connection that may begin to send HTTP/2. */
  readonly onConnection: (socket: Socket) => void;
}

const HTTP2 = "h2";

/**
 * The TCP side of the server, with TLS. grpc-js cannot reliably cut a connection: its session waits
 * for the peer to close, even after `destroy`, and a peer that hangs never closes.
 */
export class GrpcListener {
  readonly #parts: GrpcListenerParts;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(parts: GrpcListenerParts, options: { readonly connectionsMax: number }) {
    this.#parts = parts;
    const { onConnection, tls, metrics } = parts;
    this.#server =
      tls === undefined
        ? createServer({ noDelay: true }, onConnection)
        : encryptedServer(tls, onConnection);
    this.#server.maxConnections = options.connectionsMax;
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("error", ignore);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    countConnections(this.#server, "grpc", metrics);
  }

  /** Resolves to the bound `host:port`. */
  listen(options: { readonly address: string; readonly isShared: boolean }): Promise<string> {
    serveTls(this.#server, "grpc", this.#parts);
    return listen(this.#server, { ...options, what: SERVERS.grpc });
  }

  /** Takes no more connections; resolves when the last one is closed. */
  close(): Promise<void> {
    return close(this.#server);
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

function encryptedServer(
  tls: TlsMaterial,
  onConnection: GrpcListenerParts["onConnection"],
): Server {
  const options = { ...tlsServerOptions(tls), noDelay: true, ALPNProtocols: [HTTP2] };
  return createTlsServer(options, (socket) => {
    // The close event is enough; an error without a listener would end the process.
    socket.on("error", ignore);
    if (socket.alpnProtocol === HTTP2) onConnection(socket);
    else socket.destroy();
  });
}

function ignore(): void {}
