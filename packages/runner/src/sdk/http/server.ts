/** A server of node:http for a web-standard handler that is mounted in no other server. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Fetch } from "./endpoints.ts";

export interface HttpServer {
  /** `host:port`, with the port that was taken. */
  readonly address: string;
  /** Cuts the open answers. */
  stop(): Promise<void>;
}

/** Port 0 takes a free one. The default host is 127.0.0.1: `0.0.0.0` serves other machines too. */
export async function listen(
  fetch: Fetch,
  { port, host = "127.0.0.1" }: { readonly port: number; readonly host?: string },
): Promise<HttpServer> {
  const server = createServer((request, response) => void serve(fetch, request, response));
  server.listen({ port, host });
  await once(server, "listening");
  return { address: addressOf(server), stop: () => stop(server) };
}

async function serve(fetch: Fetch, incoming: IncomingMessage, response: ServerResponse) {
  const closing = new AbortController();
  response.once("close", () => closing.abort(new DOMException("the caller left", "AbortError")));
  try {
    const answer = await fetch(requestOf(incoming, closing.signal));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body === null) response.end();
    else await pipeline(Readable.fromWeb(answer.body), response);
  } catch {
    // The caller left, or the request is none that the web's Request can be.
    if (!response.headersSent) response.writeHead(400);
    response.end();
  }
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request {
  const { method = "GET", url = "/", headers } = incoming;
  const list = Object.entries(headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((one): [string, string] => [name, one]),
  );
  const hasBody = method !== "GET" && method !== "HEAD";
  return new Request(new URL(url, "http://runner"), {
    method,
    headers: list,
    signal,
    ...(hasBody && { body: Readable.toWeb(incoming), duplex: "half" }),
  });
}

async function stop(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, "close");
  server.close();
  server.closeAllConnections();
  await closed;
}

function addressOf(server: Server): string {
  const address = server.address();
  if (address === null || typeof address === "string") return "";
  return address.family === "IPv6"
    ? `[${address.address}]:${address.port}`
    : `${address.address}:${address.port}`;
}
