import type { Http2Session, ServerHttp2Stream } from "node:http2";
import { ServiceError } from "../../base/errors.ts";

/** Clients watch health once a connection, and ask reflection a few things at a time. */
const CALLS_PER_CONNECTION_MAX = 16;
const RETRY_AFTER_MS = 1_000;

/**
 * Calls that a package answers, health and reflection: anybody may make them, without a token, and they
 * may last. So one connection has a few, and all connections together no more than one each.
 */
export class ForeignCalls {
  readonly #callsMax: number;
  readonly #byConnection = new WeakMap<Http2Session, number>();
  #open = 0;

  constructor({ callsMax }: { readonly callsMax: number }) {
    this.#callsMax = callsMax;
  }

  /** Undefined: it is counted until its stream closes; else why it may not begin. */
  refusalOf(stream: ServerHttp2Stream): ServiceError | undefined {
    const { session } = stream;
    if (session === undefined) return tooMany(); // Its connection is gone.
    const own = this.#byConnection.get(session) ?? 0;
    if (own >= CALLS_PER_CONNECTION_MAX || this.#open >= this.#callsMax) return tooMany();
    this.#count(session, 1);
    stream.once("close", () => this.#count(session, -1));
    return undefined;
  }

  #count(session: Http2Session, change: 1 | -1): void {
    this.#open += change;
    this.#byConnection.set(session, (this.#byConnection.get(session) ?? 0) + change);
  }
}

function tooMany(): ServiceError {
  const message = "too many calls of health or reflection are open";
  return new ServiceError("overloaded", "SERVER_BUSY", message, { retryAfterMs: RETRY_AFTER_MS });
}
