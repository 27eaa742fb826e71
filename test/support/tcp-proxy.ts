/**
 * A TCP proxy on loopback with the faults of networks: answers are held back, as when a machine in
 * between disappears; nothing passes in either direction, for a while or for good; connections are
 * reset, or fall silent one by one.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface TcpProxy {
  readonly port: number;
  /** From now on no answer of the server passes on any connection; requests of the client do. */
  holdAnswers(): void;
  /** From now on nothing passes in either direction on any connection, new ones included. */
  hold(): void;
  /** Held bytes continue, as when lost packets are sent again. */
  release(): void;
  /** Open connections stay open and silent. New ones work. */
  silence(): void;
  /** Ends every connection with its held bytes, and lets new ones pass again. */
  cut(): void;
  /** As `cut`, with a RST to both ends. */
  reset(): void;
  /** New connections go to this address; open ones stay as they are. */
  goTo(to: HostAndPort): void;
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

/** The port of a route on loopback, such as a proxy. */
export function addressOf(way: { readonly port: number }): string {
  return `127.0.0.1:${way.port}`;
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
  isSilent: boolean;
}

type Held = "nothing" | "answers" | "everything";

export async function startTcpProxy(to: HostAndPort): Promise<TcpProxy> {
  const pairs = new Set<Pair>();
  let held: Held = "nothing";
  let target = to;
  const flow = ({ client, server, isSilent }: Pair): void => {
    if (isSilent) return;
    if (held === "nothing") server.pipe(client);
    else server.unpipe(client);
    if (held === "everything") client.unpipe(server);
    else client.pipe(server);
  };
  const listener = createServer((client) => {
    const server = connect(target);
    const pair: Pair = { client, server, isSilent: false };
    pairs.add(pair);
    flow(pair);
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

  const holdNow = (what: Held): void => {
    // Unpiped first: a stream that is piped twice into another delivers everything twice.
    for (const { client, server } of pairs) {
      client.unpipe(server);
      server.unpipe(client);
    }
    held = what;
    for (const pair of pairs) flow(pair);
  };
  const cut = (): void => {
    held = "nothing";
    for (const { client, server } of pairs) {
      client.destroy();
      server.destroy();
    }
  };
  return {
    port: address.port,
    holdAnswers: () => holdNow("answers"),
    hold: () => holdNow("everything"),
    release: () => holdNow("nothing"),
    silence: () => {
      for (const pair of pairs) {
        pair.isSilent = true;
        pair.client.unpipe(pair.server);
        pair.server.unpipe(pair.client);
      }
    },
    cut,
    reset: () => {
      held = "nothing";
      for (const { client, server } of pairs) {
        client.resetAndDestroy();
        server.resetAndDestroy();
      }
    },
    goTo: (next) => {
      target = next;
    },
    stop: async () => {
      cut();
      listener.close();
      await once(listener, "close");
    },
  };
}
