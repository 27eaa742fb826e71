import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { hasCode, refusal } from "./refusal.ts";

/**
 * Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections. A
 * server on such a port loses it during a restart: any connection of the machine may get the port,
 * even one of our own pool, which is then connected to itself.
 */
const PORT_MIN = 20_000;
const PORT_MAX = 32_767;

const TRIES_MAX = 50;

/**
 * A free port of 127.0.0.1. Another program may take it before the server listens, so start may try
 * again.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const port = randomInt(PORT_MIN, PORT_MAX + 1);
    if (await isFree(port)) return port;
  }
  throw refusal(`no free port between ${PORT_MIN} and ${PORT_MAX} for the embedded PostgreSQL`);
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  } catch (error) {
    if (hasCode(error, "EADDRINUSE", "EACCES")) return false;
    throw error;
  }
  server.close();
  await once(server, "close");
  return true;
}
