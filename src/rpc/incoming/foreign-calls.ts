import type { Http2Session, ServerHttp2Stream } from "node:http2";
import { ServiceError } from "../../base/errors.ts";

/** A client watches health once per connection, and asks reflection a few questions at a time. */
const CALLS_PER_CONNECTION_MAX = 16;
const RETRY_AFTER_MS = 1_000;

/**
 * Calls that a package answers: health and reflection. Anyone may make them without a token, and
 * they may last. So one connection may have a few of them, and all connections together one per
 * connection.
 */
export class ForeignCalls {
  readonly #callsMax: number;
  readonly #byConnection = new WeakMap<Http2Session, number>();
  #open = 0;

  constructor({ callsMax }: { readonly callsMax: number }) {
    this.#callsMax = callsMax;
  }

  /**
   * Undefined: the call is counted until its stream closes; else the reason why it may not begin.
   */
  refusalOf(stream: ServerHttp2Stream): ServiceError | undefined {
    const { session } = stream;
    if (session === undefined) return tooMany(); // The connection is gone.
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
