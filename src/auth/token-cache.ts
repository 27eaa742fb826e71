/**
 * Results for signed tokens by their SHA-256, so that a token is verified once and not with each
 * call:
 *
 *   known     verified, and its key is in force: until it expires
 *   refused   finally, kept for REFUSED_MS: a repeated bad token costs no verification
 *   checking  in progress: all calls with the same token wait for one answer
 *
 * CHECKS_MAX different tokens are verified at a time, and WAITING_MAX wait in order; further ones
 * get a retryable error. Verification is limited; cached tokens skip the limit.
 */
import { BoundedMap } from "../base/bounded-map.ts";
import { ServiceError } from "../base/errors.ts";
import { Semaphore } from "../base/semaphore.ts";
import { RefusedToken, type TokenVerifier, type Verified } from "./refused-token.ts";

export const TOKEN_CACHE_LIMITS = {
  /** Tokens in the cache; about 500 bytes each. */
  knownMax: 20_000,
  refusedMax: 5_000,
  refusedMs: 10_000,
  /** libuv has four threads for signatures. */
  checksMax: 8,
  waitingMax: 1_024,
};

/** A verified token, and its verifier. */
export interface Known extends Verified {
  readonly verifier: TokenVerifier;
}

interface Refused {
  readonly error: RefusedToken;
  readonly untilMs: number;
}

/** Times in milliseconds: `nowMs` of the wall clock, `tickMs` of the monotonic clock. */
export interface Now {
  readonly nowMs: number;
  readonly tickMs: number;
}

export class TokenCache {
  readonly #limits: typeof TOKEN_CACHE_LIMITS;
  /** The longest unused entry is dropped first. */
  readonly #known: BoundedMap<string, Known>;
  readonly #refused: BoundedMap<string, Refused>;
  readonly #checking = new Map<string, Promise<Known>>();
  readonly #checks: Semaphore;

  constructor(limits = TOKEN_CACHE_LIMITS) {
    this.#limits = limits;
    this.#known = new BoundedMap(limits.knownMax);
    this.#refused = new BoundedMap(limits.refusedMax);
    const waiting = { max: limits.waitingMax, full: tooManyChecks };
    this.#checks = new Semaphore({ atOnce: limits.checksMax, waiting });
  }

  /** Throws the refusal of a token that was refused a moment ago, or that has expired. */
  find(digest: string, { nowMs, tickMs }: Now): Known | undefined {
    const known = this.#known.get(digest);
    if (known !== undefined) {
      this.#known.delete(digest);
      if (nowMs >= known.principal.expiresAtMs) throw new RefusedToken("expired");
      if (!known.verifier.trusts(known.key)) return undefined;
      this.#known.set(digest, known);
      return known;
    }
    const refused = this.#refused.get(digest);
    if (refused === undefined) return undefined;
    if (tickMs < refused.untilMs) throw refused.error;
    this.#refused.delete(digest);
    return undefined;
  }

  /** For a token that is not in the cache; the same token is verified once at a time. */
  check(digest: string, now: () => Now, verify: () => Promise<Known>): Promise<Known> {
    const checking = this.#checking.get(digest);
    if (checking !== undefined) return checking;
    const check = this.#checks
      .run(() => this.#check(digest, now, verify))
      .finally(() => this.#checking.delete(digest));
    this.#checking.set(digest, check);
    return check;
  }

  async #check(digest: string, now: () => Now, verify: () => Promise<Known>): Promise<Known> {
    try {
      const known = await verify();
      this.#known.set(digest, known);
      return known;
    } catch (error) {
      if (error instanceof RefusedToken && error.isFinal) {
        this.#refused.set(digest, { error, untilMs: now().tickMs + this.#limits.refusedMs });
      }
      throw error;
    }
  }
}

function tooManyChecks(): ServiceError {
  const message = "too many tokens are being verified";
  return new ServiceError("overloaded", "SERVER_BUSY", message, { retryAfterMs: 1_000 });
}
