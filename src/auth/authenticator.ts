/**
 * Identifies the caller by the bearer token of the call.
 *
 *   no token is configured ─────────────────────► ANONYMOUS, with any header
 *   a static token ─────────────────────────────► its principal
 *   signed, and known from before ──────────────► its principal        (all of this at once)
 *   signed, and refused a moment ago ───────────► refused again
 *   signed, typ of its header is ours ──► verified as a session token ┐
 *   signed, else ──► verified as a token of the OIDC issuer, if any ──┴► known, or refused
 *
 * Only the header is read before the verification, and only to choose the verifier.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { type Clock, msOf } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { overloaded } from "../base/budget.ts";
import { Semaphore } from "../base/semaphore.ts";
import { startAll, stopAll, type Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { FILE_POLL_MS, watchedText } from "../transport/watched-files.ts";
import type { Audit } from "./authorizer.ts";
import { IssuerKeys, IssuerUrl, OidcVerifier } from "./oidc.ts";
import { ANONYMOUS, type Principal } from "./principal.ts";
import { RefusedToken, type TokenVerifier, type VerifiedToken } from "./refused-token.ts";
import { SESSION_TOKEN_TYPE, SessionTokens, type TokenKeyStore } from "./session-tokens.ts";
import { digestOf, StaticTokens } from "./static-tokens.ts";

interface AuthenticatorParts {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly keys: TokenKeyStore;
}

interface AuthOptions {
  readonly authTokens: string | undefined;
  readonly authTokensFile: string | undefined;
  readonly oidcIssuer: string | undefined;
  readonly oidcAudience: string | undefined;
  readonly oidcJwksUrl: string | undefined;
  readonly oidcJwksFile: string | undefined;
  readonly oidcAlgorithms: readonly string[];
  readonly oidcRolesClaim: string;
  readonly oidcProjectClaim: string;
  readonly sessionTokenTtlMaxMs: number;
}

/** Undefined: no issuer. The unit keeps the keys; `check` reads a file of keys. */
function createOidc(parts: AuthenticatorParts, options: AuthOptions, pollMs: number) {
  const { oidcIssuer: issuer, oidcAudience: audience = "", oidcJwksUrl, oidcJwksFile } = options;
  if (issuer === undefined) return undefined;
  const { log, metrics, clock } = parts;
  const keys = new IssuerKeys();
  const url =
    oidcJwksUrl === undefined ? undefined : new IssuerUrl({ ...parts, keys }, oidcJwksUrl);
  const file = watchedText(
    {
      log,
      take: (text) => keys.take(text),
      onReload: (outcome) => metrics.authFileReloads.inc({ file: "jwks", outcome }),
    },
    { setting: "OIDC_JWKS_FILE", path: oidcJwksFile ?? "", pollMs },
  );
  const verifier = new OidcVerifier(
    { clock, keys, lookAgain: async () => url?.lookAgain() },
    {
      issuer,
      audience,
      algorithms: options.oidcAlgorithms,
      rolesClaim: options.oidcRolesClaim,
      projectClaim: options.oidcProjectClaim,
    },
  );
  return { verifier, unit: url ?? file, check: async () => url ?? file.check() };
}

/** The limit for the whole value with the scheme; issuers with many groups fill 4 KiB. */
const VALUE_CHARS_MAX = 8_192;
const BEARER_FORM = /^Bearer +([\x21-\x7e]+)$/i;
const SIGNED_FORM = /^[\w-]+\.[\w-]+\.[\w-]+$/;

export class Authenticator implements Unit {
  /** False: no token is configured; every caller is ANONYMOUS and `authorization` is ignored. */
  readonly asks: boolean;
  readonly sessionTokens: SessionTokens;
  readonly #parts: AuthenticatorParts;
  readonly #tokens: StaticTokens;
  readonly #oidc: ReturnType<typeof createOidc>;
  readonly #units: readonly Unit[];
  readonly #cache = new TokenCache();
  /** For principals of signed tokens: the verifier and the key. */
  readonly #verified = new WeakMap<Principal, CachedToken>();

  constructor(
    parts: AuthenticatorParts,
    options: AuthOptions,
    { filePollMs } = { filePollMs: FILE_POLL_MS },
  ) {
    const { authTokens, authTokensFile, oidcIssuer } = options;
    this.#parts = parts;
    this.asks = [authTokens, authTokensFile, oidcIssuer].some((one) => one !== undefined);
    this.sessionTokens = new SessionTokens(
      { ...parts, store: parts.keys },
      { ttlMaxMs: options.sessionTokenTtlMaxMs, readsRegularly: this.asks },
    );
    this.#tokens = new StaticTokens(parts, { authTokens, authTokensFile, filePollMs });
    this.#oidc = createOidc(parts, options, filePollMs);
    const issuer = this.#oidc === undefined ? [] : [this.#oidc.unit];
    this.#units = [this.#tokens, ...issuer, this.sessionTokens];
  }

  async start(): Promise<void> {
    await startAll(this.#units);
    if (!this.asks || this.#oidc !== undefined || !this.#tokens.isEmpty) return;
    this.#parts.log.warn(
      {},
      "no tokens in AUTH_TOKENS and AUTH_TOKENS_FILE, and no OIDC_ISSUER: nobody can come in",
    );
  }

  /** Reads all files and rejects as a start does; for use before a database is made. */
  async check(): Promise<void> {
    await this.#tokens.check();
    await this.#oidc?.check();
  }

  async stop(): Promise<void> {
    await stopAll(this.#units);
  }

  /**
   * Takes every value of `authorization`, unchanged. Throws or rejects with UNAUTHENTICATED, with
   * one text for all faults of a token except its age, or with a retryable error. Synchronous for a
   * cached token.
   */
  authenticate(authorization: readonly string[]): Principal | Promise<Principal> {
    if (!this.asks) return ANONYMOUS;
    try {
      const token = tokenIn(authorization);
      const digest = digestOf(token);
      const principal = this.#tokens.find(digest) ?? this.#recall(digest);
      return principal === undefined ? this.#verify(token, digest) : this.#accept(principal);
    } catch (error) {
      throw this.#refuse(error);
    }
  }

  /**
   * The error that ends a stream of this principal: its token expired or was removed, or the key
   * was. Undefined: the stream may continue. Pass the object that `authenticate` returned.
   */
  refusalOf(principal: Principal): ServiceError | undefined {
    const { kind, expiresAtMs } = principal;
    if (kind === "anonymous") return this.asks ? new RefusedToken("missing") : undefined;
    if (kind === "static") {
      return this.#tokens.has(principal) ? undefined : new RefusedToken("unknown");
    }
    if (expiresAtMs !== undefined && this.#now().nowMs >= expiresAtMs) {
      return new RefusedToken("expired");
    }
    const cached = this.#verified.get(principal);
    return cached?.verifier.trusts(cached.key) === true
      ? undefined
      : new RefusedToken("unknown_key");
  }

  #recall(digest: string): Principal | undefined {
    const { tokenChecks } = this.#parts.metrics;
    try {
      const cached = this.#cache.find(digest, this.#now());
      if (cached !== undefined) tokenChecks.inc({ result: "known" });
      return cached?.principal;
    } catch (error) {
      tokenChecks.inc({ result: "refused" });
      throw error;
    }
  }

  async #verify(token: string, digest: string): Promise<Principal> {
    try {
      const verifier = await this.#verifierOf(token);
      const verified = await this.#cache.check(
        digest,
        () => this.#now(),
        async () => {
          this.#parts.metrics.tokenChecks.inc({ result: "verified" });
          return { ...(await verifier.verify(token)), verifier };
        },
      );
      this.#verified.set(verified.principal, verified);
      return this.#accept(verified.principal);
    } catch (error) {
      throw this.#refuse(error);
    }
  }

  async #verifierOf(token: string): Promise<TokenVerifier> {
    if (!SIGNED_FORM.test(token)) throw new RefusedToken("unknown");
    const isOurs = (await typeOf(token)) === SESSION_TOKEN_TYPE;
    const verifier = isOurs ? this.sessionTokens : this.#oidc?.verifier;
    if (verifier === undefined) throw new RefusedToken("unknown");
    return verifier;
  }

  #accept(principal: Principal): Principal {
    this.#parts.metrics.authentications.inc({ kind: principal.kind, outcome: "accepted" });
    return principal;
  }

  #refuse(error: unknown): unknown {
    const { metrics, audit } = this.#parts;
    const outcome = error instanceof RefusedToken ? error.refusal : ServiceError.from(error).reason;
    metrics.authentications.inc({ kind: "unknown", outcome });
    if (error instanceof RefusedToken) audit.unauthenticated(error.refusal);
    return error;
  }

  #now(): Now {
    const { clock } = this.#parts;
    return { nowMs: msOf(clock.nowMicros()), tickMs: clock.monotonicMs() };
  }
}

/** Some clients send a header twice; two equal values count as one. */
function tokenIn(authorization: readonly string[]): string {
  const [value, ...more] = authorization;
  if (value === undefined) throw new RefusedToken("missing");
  if (more.some((another) => another !== value)) throw new RefusedToken("differing");
  if (value.length > VALUE_CHARS_MAX) throw new RefusedToken("form");
  const token = BEARER_FORM.exec(value)?.[1];
  if (token === undefined) throw new RefusedToken("missing");
  return token;
}

async function typeOf(token: string): Promise<string | undefined> {
  const { decodeProtectedHeader } = await import("jose");
  try {
    return decodeProtectedHeader(token).typ;
  } catch {
    throw new RefusedToken("header");
  }
}

/**
 * Results for signed tokens by their SHA-256, so that a token is verified once and not with each
 * call:
 *
 *   known     verified, and its key is in force: until it expires
 *   refused   finally, cached for REFUSED_MS: a repeated bad token costs no verification
 *   checking  in progress: all calls with the same token wait for one answer
 *
 * CHECKS_MAX different tokens are verified at a time, and WAITING_MAX wait in order; further ones
 * get a retryable error. Verification is limited; cached tokens skip the limit.
 */

export const TOKEN_CACHE_LIMITS = {
  /** Tokens in the cache; about 500 bytes each. */
  verifiedMax: 20_000,
  refusedMax: 5_000,
  refusedMs: 10_000,
  /** libuv has four threads for signatures. */
  checksMax: 8,
  waitingMax: 1_024,
};

export interface CachedToken extends VerifiedToken {
  readonly verifier: TokenVerifier;
}

/** Times in milliseconds: `nowMs` of the wall clock, `tickMs` of the monotonic clock. */
interface Now {
  readonly nowMs: number;
  readonly tickMs: number;
}

export class TokenCache {
  readonly #limits: typeof TOKEN_CACHE_LIMITS;
  /** The longest unused entry is dropped first. */
  readonly #verified: BoundedMap<string, CachedToken>;
  readonly #refused: BoundedMap<string, { readonly error: RefusedToken; readonly untilMs: number }>;
  readonly #checking = new Map<string, Promise<CachedToken>>();
  readonly #checks: Semaphore;

  constructor(limits = TOKEN_CACHE_LIMITS) {
    this.#limits = limits;
    this.#verified = new BoundedMap(limits.verifiedMax);
    this.#refused = new BoundedMap(limits.refusedMax);
    const waiting = {
      max: limits.waitingMax,
      full: () => overloaded("SERVER_BUSY", "too many tokens are being verified"),
    };
    this.#checks = new Semaphore({ atOnce: limits.checksMax, waiting });
  }

  /** Throws the refusal of a token that was refused a moment ago, or that has expired. */
  find(digest: string, { nowMs, tickMs }: Now): CachedToken | undefined {
    const cached = this.#verified.get(digest);
    if (cached !== undefined) {
      this.#verified.delete(digest);
      if (nowMs >= cached.principal.expiresAtMs) throw new RefusedToken("expired");
      if (!cached.verifier.trusts(cached.key)) return undefined;
      this.#verified.set(digest, cached);
      return cached;
    }
    const refused = this.#refused.get(digest);
    if (refused === undefined) return undefined;
    if (tickMs < refused.untilMs) throw refused.error;
    this.#refused.delete(digest);
    return undefined;
  }

  /** For a token that is not in the cache; the same token is verified once at a time. */
  check(digest: string, now: () => Now, verify: () => Promise<CachedToken>): Promise<CachedToken> {
    const checking = this.#checking.get(digest);
    if (checking !== undefined) return checking;
    const verified = async (): Promise<CachedToken> => {
      try {
        const token = await verify();
        this.#verified.set(digest, token);
        return token;
      } catch (error) {
        if (error instanceof RefusedToken && error.isFinal) {
          this.#refused.set(digest, { error, untilMs: now().tickMs + this.#limits.refusedMs });
        }
        throw error;
      }
    };
    const check = this.#checks.run(verified).finally(() => this.#checking.delete(digest));
    this.#checking.set(digest, check);
    return check;
  }
}
