import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

// A TCP proxy on loopback with the faults of networks: answers are held back, as when a machine in
// between disappears; nothing passes in either direction, for a while or for good; connections are
// reset, or fall silent one by one.

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

// A route to a server that a test can cut: open connections break, and new ones fail.

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

// A route to a server on which single connections can be silenced: they stay open, requests of the
// client arrive, and no answer returns. Later connections work.

export interface SilentWay {
  readonly port: number;
  /** All connections so far. */
  readonly connections: number;
  /** From now on no answer returns on the open connections. */
  silence(): void;
  stop(): Promise<void>;
}

export async function startSilentWay(target: {
  readonly host: string;
  readonly port: number;
}): Promise<SilentWay> {
  const pairs = new Map<Socket, Socket>();
  let connections = 0;
  const listener = createServer((near) => {
    connections += 1;
    const far = connect(target);
    pairs.set(near, far);
    near.pipe(far).pipe(near);
    const end = (): void => {
      near.destroy();
      far.destroy();
      pairs.delete(near);
    };
    for (const socket of [near, far]) socket.on("error", end).on("close", end);
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    port: address.port,
    get connections() {
      return connections;
    },
    silence: () => {
      for (const [near, far] of pairs) {
        far.unpipe(near);
        far.resume();
      }
    },
    stop: async () => {
      for (const near of pairs.keys()) near.destroy();
      listener.close();
      await once(listener, "close");
    },
  };
}

// A listener on loopback that accepts connections and answers nothing.

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
