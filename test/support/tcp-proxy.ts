/**
 * A TCP proxy on loopback whose answers a test can keep back: what the client sent arrives, and what
 * the server says to it does not, as when a machine in between goes away.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface TcpProxy {
  readonly port: number;
  /** From here on nothing of the server gets through, on no connection. */
  holdAnswers(): void;
  /** Ends every connection, with what was held, and lets new ones through again. */
  cut(): void;
  stop(): Promise<void>;
}

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

/** Of `host:port`. */
export function hostAndPort(address: string): HostAndPort {
  const [host = "", port = ""] = address.split(":");
  return { host, port: Number(port) };
}

/** Where a way on loopback, a proxy or another one, is reached. */
export function addressOf(way: { readonly port: number }): string {
  return `127.0.0.1:${way.port}`;
}

export async function startTcpProxy(to: HostAndPort): Promise<TcpProxy> {
  const pairs = new Set<{ readonly client: Socket; readonly server: Socket }>();
  let isHolding = false;
  const listener = createServer((client) => {
    const server = connect(to);
    const pair = { client, server };
    pairs.add(pair);
    if (!isHolding) server.pipe(client);
    client.pipe(server);
    const end = (): void => {
      client.destroy();
      server.destroy();
      pairs.delete(pair);
    };
    for (const socket of [client, server]) socket.on("error", end).on("close", end);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("no port");

  const cut = (): void => {
    isHolding = false;
    for (const { client, server } of pairs) {
      client.destroy();
      server.destroy();
    }
  };
  return {
    port: address.port,
    holdAnswers: () => {
      isHolding = true;
      for (const { client, server } of pairs) server.unpipe(client);
    },
    cut,
    stop: async () => {
      cut();
      listener.close();
      await once(listener, "close");
    },
  };
}
