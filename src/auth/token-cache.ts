/**
 * What is known of signed tokens, by their SHA-256, so that a caller's token is verified once and not with
 * each call:
 *
 *   known     verified, and its key is in force: until it expires
 *   refused   for good, for REFUSED_MS: the same bad token again and again costs nobody a verification
 *   checking  under way: all who come with it meanwhile wait for the one answer
 *
 * Of different tokens, CHECKS_MAX are verified at a time, and WAITING_MAX wait for that, in order; more
 * are told to come again. Tokens that are known go by all of it.
 */
import { ServiceError } from "../base/errors.ts";
import { RefusedToken } from "./refused-token.ts";
import type { TokenVerifier, Verified } from "./verifier.ts";

export interface TokenCacheLimits {
  readonly knownMax: number;
  readonly refusedMax: number;
  readonly refusedMs: number;
  readonly checksMax: number;
  readonly waitingMax: number;
}

export const TOKEN_CACHE_LIMITS: TokenCacheLimits = {
  /** Callers at a time; about 500 bytes each. */
  knownMax: 20_000,
  refusedMax: 5_000,
  refusedMs: 10_000,
  /** libuv has four threads for signatures. */
  checksMax: 8,
  waitingMax: 1_024,
};
const BUSY_RETRY_MS = 1_000;

/** A token that was verified, and by whom. */
export interface Known extends Verified {
  readonly verifier: TokenVerifier;
}

interface Refused {
  readonly error: RefusedToken;
  readonly untilMs: number;
}

/** Times are milliseconds: `nowMs` of the wall clock, `tickMs` of the one that never steps back. */
export interface Now {
  readonly nowMs: number;
  readonly tickMs: number;
}

export class TokenCache {
  readonly #limits: TokenCacheLimits;
  /** The longest unused first, as Map keeps what was added last at its end. */
  readonly #known = new Map<string, Known>();
  readonly #refused = new Map<string, Refused>();
  readonly #checking = new Map<string, Promise<Known>>();
  readonly #waiting: (() => void)[] = [];
  #checks = 0;

  constructor(limits: TokenCacheLimits = TOKEN_CACHE_LIMITS) {
    this.#limits = limits;
  }

  /** Throws what it was refused with, a moment ago or because its time is over. */
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

  /** What is not known; the same token is verified once at a time. */
  check(digest: string, now: () => Now, verify: () => Promise<Known>): Promise<Known> {
    const checking = this.#checking.get(digest);
    if (checking !== undefined) return checking;
    if (this.#checks >= this.#limits.checksMax && this.#waiting.length >= this.#limits.waitingMax) {
      throw new ServiceError("overloaded", "SERVER_BUSY", "too many tokens are being verified", {
        retryAfterMs: BUSY_RETRY_MS,
      });
    }
    const check = this.#check(digest, now, verify).finally(() => this.#checking.delete(digest));
    this.#checking.set(digest, check);
    return check;
  }

  async #check(digest: string, now: () => Now, verify: () => Promise<Known>): Promise<Known> {
    await this.#enter();
    try {
      const known = await verify();
      this.#known.set(digest, known);
      keepNewest(this.#known, this.#limits.knownMax);
      return known;
    } catch (error) {
      if (error instanceof RefusedToken && error.isFinal) {
        this.#refused.set(digest, { error, untilMs: now().tickMs + this.#limits.refusedMs });
        keepNewest(this.#refused, this.#limits.refusedMax);
      }
      throw error;
    } finally {
      this.#leave();
    }
  }

  async #enter(): Promise<void> {
    if (this.#checks < this.#limits.checksMax) {
      this.#checks += 1;
      return;
    }
    // Whoever leaves hands its place on, so that nobody slips in between.
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#checks -= 1;
    else next();
  }
}

function keepNewest(map: Map<string, unknown>, max: number): void {
  for (const oldest of map.keys()) {
    if (map.size <= max) return;
    map.delete(oldest);
  }
}
