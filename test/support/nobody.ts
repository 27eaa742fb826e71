/** Somebody on loopback who takes connections and is no server of any kind. */
import { once } from "node:events";
import { createServer, type Socket } from "node:net";

export interface Nobody {
  readonly port: number;
  /** Connections that are open, and all there ever were. */
  readonly open: number;
  readonly connections: number;
  stop(): Promise<void>;
}

export async function startNobody(greet: (socket: Socket) => void): Promise<Nobody> {
  const sockets = new Set<Socket>();
  let connections = 0;
  // Half open, because nobody says goodbye: a socket here is open until the other end is really gone.
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
