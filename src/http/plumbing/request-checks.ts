/** What a request must satisfy before its route runs, and what its Accept headers ask for. */
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { parse, type ParsedUrlQuery } from "node:querystring";
import { invalidArgument, type ServiceError } from "@session-ledger/base/errors";
import { fieldRefusal, HttpRefusal, nothingHere } from "./problem.ts";

/** Parameters of one request; no route has a tenth of them, but `event_type` may repeat. */
const PARAMETERS_MAX = 256;

/** A repeated parameter is an array. */
export function parseQuery(text: string): ParsedUrlQuery {
  return parse(text, "&", "=", { maxKeys: PARAMETERS_MAX });
}

/** The parser cannot refuse, so a badly encoded query is refused before the route. */
export function checkQuery(url: string): ServiceError | undefined {
  const start = url.indexOf("?");
  if (start < 0) return undefined;
  const parts = url.slice(start + 1).split("&");
  if (parts.length > PARAMETERS_MAX) {
    const description = `the query must have at most ${PARAMETERS_MAX} parameters`;
    return invalidArgument([{ field: "", description }]);
  }
  const broken = parts.find((part) => decoded(part) === undefined);
  if (broken === undefined) return undefined;
  const field = broken.split("=", 1)[0] ?? "";
  return invalidArgument([{ field, description: `${field} is not URL-encoded UTF-8` }]);
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}

/**
 * Against DNS rebinding: a page that makes its host name resolve to 127.0.0.1 calls a service on
 * this machine as its own origin, but cannot forge `Host`. So a service that only this machine can
 * reach answers only to names of this machine. Node keeps the first of two Host headers, and a
 * proxy may have checked the other, so two are always refused (RFC 9112, 3.2). No page speaks
 * HTTP/1.0.
 */
export function checkHost(
  { rawHeaders, headers: { host }, httpVersion }: IncomingMessage,
  { isOnLoopback }: { readonly isOnLoopback: boolean },
): HttpRefusal | undefined {
  // In raw headers, names and values alternate.
  const hosts = rawHeaders.filter((text, at) => at % 2 === 0 && text.toLowerCase() === "host");
  if (hosts.length > 1) return fieldRefusal(400, "Host", "Host must occur once");
  if (!isOnLoopback) return undefined;
  if (host === undefined || host === "") {
    return httpVersion === "1.0" ? undefined : fieldRefusal(400, "Host", "Host is required");
  }
  if (isLoopbackName(host.replace(/:\d*$/, ""))) return undefined;
  return fieldRefusal(421, "Host", "Host must be localhost or a loopback address");
}

/** With or without brackets. Names are not resolved: RFC 6761 defines `localhost`. */
export function isLoopbackName(name: string): boolean {
  const bare = name.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  return bare === "localhost" || bare === "::1" || (isIP(bare) === 4 && bare.startsWith("127."));
}

export function checkContentCoding(coding: string | undefined): ServiceError | undefined {
  if (coding === undefined || coding.trim().toLowerCase() === "identity") return undefined;
  return fieldRefusal(415, "Content-Encoding", "Content-Encoding must be identity", {
    "accept-encoding": "identity",
  });
}

/** The served routes: the framework cannot distinguish a wrong method from a wrong path. */
export class RouteTable {
  readonly #methods = new Map<string, Set<string>>();

  add(method: string | readonly string[], url: string): void {
    // A path is words, `:name` for a segment, and `*` for the rest.
    const text = url.replaceAll(".", String.raw`\.`).replaceAll("*", ".*");
    const pattern = text.replaceAll(/:[^/]+/g, "[^/]+");
    const methods = this.#methods.get(pattern) ?? new Set();
    this.#methods.set(pattern, methods);
    for (const one of [method].flat()) methods.add(one);
  }

  /** The methods of a path; none where nothing is served. */
  methodsOf(url: string): ReadonlySet<string> {
    const path = url.split("?", 1)[0] ?? "";
    const found = [...this.#methods].filter(([pattern]) => new RegExp(`^${pattern}$`).test(path));
    return new Set(found.flatMap(([, served]) => [...served]));
  }

  /** For a request without a route: 405 where another method exists, else 404. */
  refusalOf(method: string, url: string): HttpRefusal {
    const methods = this.methodsOf(url);
    if (methods.size === 0) return nothingHere();
    const allow = [...methods].toSorted().join(", ");
    return new HttpRefusal(405, `${method} is not for this path, but ${allow}`, {
      code: "unimplemented",
      headers: { allow },
    });
  }
}

const JSON_TYPES = ["application/json", "application/*", "*/*"];

/**
 * Whether a resource with a JSON form is answered as a stream: the header names the stream, and
 * JSON with no higher weight. `*` asks for no stream, and a name wins over it at the same weight.
 */
export function wantsEventStream(accept: string | undefined): boolean {
  const weights = weightsOf(accept);
  const stream = weights.get("text/event-stream") ?? 0;
  if (stream === 0) return false;
  const named = JSON_TYPES.find((type) => weights.has(type));
  if (named === undefined) return true;
  const json = weights.get(named) ?? 0;
  return named === "application/json" ? stream > json : stream >= json;
}

/**
 * Whether the weight of gzip is at least that of no compression. Without any accepted encoding the
 * answer is not compressed (RFC 9110, section 12.5.3).
 */
export function acceptsGzip(acceptEncoding: string | undefined): boolean {
  const weights = weightsOf(acceptEncoding);
  const gzip = weights.get("gzip") ?? weights.get("x-gzip") ?? weights.get("*") ?? 0;
  return gzip > 0 && gzip >= (weights.get("identity") ?? 0);
}

/** RFC 9110, section 12.4.2: 0 to 1 with at most three decimals. */
const WEIGHT = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/;

/** A part that cannot be parsed weighs nothing; of a name that is given twice the heavier counts. */
function weightsOf(header = ""): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const part of header.split(",")) {
    const [name = "", ...parameters] = part.split(";").map((text) => text.trim().toLowerCase());
    const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2) ?? "1";
    const existing = weights.get(name) ?? 0;
    weights.set(name, Math.max(existing, WEIGHT.test(weight) ? Number(weight) : 0));
  }
  return weights;
}
