/** A listener on loopback that accepts connections and answers nothing. */
import { once } from "node:events";
import { createServer, type Socket } from "node:net";

export interface Nobody {
  readonly port: number;
  /** The open connections, and all connections so far. */
  readonly open: number;
  readonly connections: number;
  stop(): Promise<void>;
}

export async function startNobody(greet: (socket: Socket) => void): Promise<Nobody> {
  const sockets = new Set<Socket>();
  let connections = 0;
  // Half open: a socket here stays open until the other end really closes it.
  const listener = createServer({ allowHalfOpen: true }, (socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("end", () => {
      const knocking = setInterval(() => socket.write("?"), 5);
      socket.on("close", () => clearInterval(knocking));
    });
    socket.on("close", () => sockets.delete(socket));
    greet(socket);
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    port: address.port,
    get open() {
      return sockets.size;
    },
    get connections() {
      return connections;
    },
    stop: async () => {
      listener.close();
      await once(listener, "close");
    },
  };
}
