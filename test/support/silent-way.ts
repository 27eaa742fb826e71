/**
 * A route to a server on which single connections can be silenced: they stay open, requests of the
 * client arrive, and no answer returns. Later connections work.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

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
