import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { ServiceError } from "../base/errors.ts";

/**
 * The TCP side of the server. It is ours because grpc-js cannot cut a connection for certain: a session
 * that was told to go waits for its peer to close, even when it is destroyed then, and a peer that
 * hangs never does.
 */
export class Listener {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(onConnection: (socket: Socket) => void) {
    this.#server = createServer({ noDelay: true }, (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
      onConnection(socket);
    });
  }

  /** Resolves to `host:port` as it is bound; port 0 takes a free one. */
  async listen(address: string): Promise<string> {
    const separator = address.lastIndexOf(":");
    const host = address.slice(0, separator);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once("error", reject);
    const port = Number(address.slice(separator + 1));
    this.#server.listen({ host: host.replace(/^\[(.*)\]$/, "$1"), port }, resolve);
    try {
      await promise;
    } catch (cause) {
      throw cannotListen(address, cause);
    } finally {
      this.#server.off("error", reject);
    }
    return `${host}:${portOf(this.#server.address())}`;
  }

  /** Takes no more connections; resolves when the last one is gone. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve()); // Its error says that it does not listen, which is right.
    });
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("not a TCP server");
  return address.port;
}

function cannotListen(address: string, cause: unknown): ServiceError {
  const isInUse = cause instanceof Error && "code" in cause && cause.code === "EADDRINUSE";
  const why = isInUse ? "the address is in use" : String(cause);
  const message = `gRPC cannot listen on ${address}: ${why}`;
  return new ServiceError("failed_precondition", "INVALID_REQUEST", message, { cause });
}
