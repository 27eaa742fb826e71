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
  /** Nothing passes; or no answers, while requests pass. */
  held: Held;
}

type Held = "nothing" | "answers" | "everything";

interface Route extends TcpProxy {
  /** All connections so far. */
  readonly connections: number;
  /** No answer returns on the open connections; later connections work. */
  readonly silenceAnswers: () => void;
  /** Resets open connections, and refuses new ones until `mend`. */
  readonly close: () => Promise<void>;
  readonly mend: () => Promise<void>;
}

/** On a free port by default. */
export function startTcpProxy(to: HostAndPort, onPort = 0): Promise<TcpProxy> {
  return startRoute(to, onPort);
}

async function startRoute(to: HostAndPort, onPort = 0): Promise<Route> {
  const pairs = new Set<Pair>();
  let connections = 0;
  let held: Held = "nothing";
  let target = to;
  const listener = createServer((client) => {
    connections += 1;
    const pair: Pair = { client, server: connect(target), held: "nothing" };
    pairs.add(pair);
    hold(pair, held);
    const end = (): void => {
      client.destroy();
      pair.server.destroy();
      pairs.delete(pair);
    };
    for (const socket of [client, pair.server]) socket.on("error", end).on("close", end);
  });
  const port = await listen(listener, onPort);
  /** A connection that was silenced alone stays so. */
  const holdAll = (what: Held): void => {
    held = what;
    for (const pair of pairs) if (pair.held === "nothing") hold(pair, what);
  };
  const silence = (what: Held): void => {
    for (const pair of pairs) {
      hold(pair, what);
      pair.held = what;
    }
  };
  const end = (how: "destroy" | "resetAndDestroy"): void => {
    held = "nothing";
    for (const { client, server } of pairs) {
      client[how]();
      server[how]();
    }
  };
  const close = async (): Promise<void> => {
    if (!listener.listening) return;
    const closed = once(listener, "close");
    listener.close();
    end("resetAndDestroy");
    await closed;
  };
  return {
    port,
    get connections() {
      return connections;
    },
    holdAnswers: () => holdAll("answers"),
    hold: () => holdAll("everything"),
    release: () => holdAll("nothing"),
    silence: () => silence("everything"),
    silenceAnswers: () => {
      silence("answers");
      for (const { server } of pairs) server.resume(); // The answers are lost.
    },
    cut: () => end("destroy"),
    reset: () => end("resetAndDestroy"),
    goTo: (next) => {
      target = next;
    },
    stop: async () => {
      end("destroy");
      await close();
    },
    close,
    mend: async () => {
      if (!listener.listening) await listen(listener, port);
    },
  };
}

function hold({ client, server }: Pair, what: Held): void {
  // Unpiped first: a stream that is piped twice into another delivers everything twice.
  client.unpipe(server);
  server.unpipe(client);
  if (what === "nothing") server.pipe(client);
  if (what !== "everything") client.pipe(server);
}

async function listen(server: Server, port: number): Promise<number> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("it has no port");
  return address.port;
}

// A route to a server that a test can cut: open connections break, and new ones fail.

export interface BreakableWay {
  /** The address to use instead of the server's. */
  readonly port: number;
  cut(): Promise<void>;
  mend(): Promise<void>;
}

export async function breakableWay(target: HostAndPort): Promise<BreakableWay> {
  const { port, close, mend } = await startRoute(target);
  return { port, cut: close, mend };
}

// A route to a server on which single connections can be silenced: they stay open, requests of the
// client arrive, and no answer returns. Later connections work.

export interface SilentWay extends Pick<Route, "port" | "connections" | "stop"> {
  /** From now on no answer returns on the open connections. */
  silence(): void;
}

export async function startSilentWay(target: HostAndPort): Promise<SilentWay> {
  const route = await startRoute(target);
  return Object.assign(route, { silence: route.silenceAnswers });
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
  });
  const port = await listen(listener, 0);
  return {
    port,
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
