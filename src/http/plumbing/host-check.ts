/**
 * Against DNS rebinding: a web page can make its own host name resolve to 127.0.0.1. Then it can
 * call a service on this machine as its own origin, and without tokens the service would answer.
 * The page cannot forge the name in `Host`. So a service that only this machine can reach answers
 * only to names of this machine.
 */
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { HttpRefusal } from "./problem.ts";

/**
 * Undefined when the request may pass. Node keeps the first of two Host headers, and a proxy before
 * the service may have checked the other, so two are always refused (RFC 9112, 3.2). HTTP/1.1
 * requires one Host; no page speaks HTTP/1.0.
 */
export function checkHost(
  request: IncomingMessage,
  { isOnLoopback }: { readonly isOnLoopback: boolean },
): HttpRefusal | undefined {
  if (request.rawHeaders.filter(isHost).length > 1) return refusal(400, "Host must be there once");
  if (!isOnLoopback) return undefined;
  const { host } = request.headers;
  if (host === undefined || host === "") {
    return request.httpVersion === "1.0" ? undefined : refusal(400, "Host is required");
  }
  const name = host.replace(/:\d*$/, "");
  return isLoopbackName(name)
    ? undefined
    : refusal(421, "Host must be localhost or a loopback address");
}

/**
 * A name with or without the brackets of an IPv6 address. Names are not resolved: RFC 6761 defines
 * `localhost`.
 */
export function isLoopbackName(name: string): boolean {
  const bare = name.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  return bare === "localhost" || bare === "::1" || (isIP(bare) === 4 && bare.startsWith("127."));
}

function refusal(status: number, description: string): HttpRefusal {
  return new HttpRefusal(status, description, { violations: [{ field: "Host", description }] });
}

/** In raw headers, names and values alternate. */
function isHost(text: string, at: number): boolean {
  return at % 2 === 0 && text.toLowerCase() === "host";
}
