/**
 * Lets the pages of named origins read answers and send requests (https://fetch.spec.whatwg.org,
 * "HTTP extensions"). Tokens travel in `authorization`, which a page sets itself, so no answer
 * allows credentials. The answer names one origin and never `*`, so it varies by `Origin`.
 */
import type { IncomingHttpHeaders } from "node:http";
import type { FastifyReply } from "fastify";

/** The headers that a page may send, in addition to the few that every page may. */
const REQUEST_HEADERS = [
  "authorization",
  "content-type",
  "idempotency-key",
  "producer-epoch",
  "last-event-id",
  "traceparent",
].join(", ");

/** The headers that a page may read, in addition to the few that every page may. */
const ANSWER_HEADERS = [
  "location",
  "idempotent-replayed",
  "retry-after",
  "www-authenticate",
  "content-disposition",
].join(", ");

/** Chromium remembers a permission for at most two hours. */
const MAX_AGE_S = 7_200;

export class Cors {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /** Adds the headers of every answer, refusals included. */
  answer({ origin }: IncomingHttpHeaders, reply: FastifyReply): void {
    if (this.#origins.size === 0) return;
    vary(reply, "Origin");
    if (!this.#isNamed(origin)) return;
    void reply.header("access-control-allow-origin", origin);
    void reply.header("access-control-expose-headers", ANSWER_HEADERS);
  }

  /** The question of a browser before a request; an origin that is not named gets no answer to it. */
  isPreflight(method: string, headers: IncomingHttpHeaders): boolean {
    const asked = headers["access-control-request-method"];
    return method === "OPTIONS" && asked !== undefined && this.#isNamed(headers.origin);
  }

  /** The permission, for a path that has these methods. */
  static permit(reply: FastifyReply, methods: ReadonlySet<string>): void {
    void reply.headers({
      "access-control-allow-methods": [...methods].toSorted().join(", "),
      "access-control-allow-headers": REQUEST_HEADERS,
      "access-control-max-age": MAX_AGE_S,
    });
  }

  #isNamed(origin: string | undefined): boolean {
    return origin !== undefined && this.#origins.has(origin);
  }
}

export function vary(reply: FastifyReply, header: string): void {
  const before = reply.getHeader("vary");
  void reply.header("vary", before === undefined ? header : `${String(before)}, ${header}`);
}
