/** A route to a server that a test can cut: open connections break, and new ones fail. */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

export interface BreakableWay {
  /** The address to use instead of the server's. */
  readonly port: number;
  cut(): Promise<void>;
  mend(): Promise<void>;
}

export async function breakableWay(target: {
  readonly host: string;
  readonly port: number;
}): Promise<BreakableWay> {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(target);
    near.pipe(far).pipe(near);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
      socket.on("error", () => undefined); // The close that follows is what counts.
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  const port = await listen(server, 0);
  return {
    port,
    async cut() {
      if (!server.listening) return;
      const closed = once(server, "close");
      server.close();
      for (const socket of sockets) socket.resetAndDestroy();
      await closed;
    },
    async mend() {
      if (!server.listening) await listen(server, port);
    },
  };
}

async function listen(server: Server, port: number): Promise<number> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("it has no port");
  return address.port;
}
