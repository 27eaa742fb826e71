/**
 * JWTs of an OpenID Connect issuer. jose verifies signature, issuer, audience and times; only then
 * the principal is read.
 */
import type { createLocalJWKSet, JWK, JWSHeaderParameters, JWTPayload } from "jose";
import { z } from "zod";
import { type Clock, msOf } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { Unit } from "../base/unit.ts";
import { withoutMark } from "@session-ledger/base/utf8";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { PROJECT_FORM, type CallerRole, ROLES } from "./principal.ts";
import {
  RefusedToken,
  textRefused,
  type TokenVerifier,
  verifiedBy,
  type VerifiedToken,
} from "./refused-token.ts";

interface OidcOptions {
  readonly issuer: string;
  readonly audience: string;
  readonly algorithms: readonly string[];
  readonly rolesClaim: string;
  readonly projectClaim: string;
}

interface OidcParts {
  readonly clock: Clock;
  readonly keys: IssuerKeys;
  /** A token names an unknown key; resolves when the key may have arrived. */
  readonly lookAgain: () => Promise<void>;
}

/** The allowed difference between the issuer's clock and ours. */
const SKEW_S = 30;
/** OpenID Connect Core, section 2: `sub` has at most 255 characters. */
const SUBJECT_FORM = /^[^\p{Cc}\p{Cs}]{1,255}$/u;

export class OidcVerifier implements TokenVerifier {
  readonly #parts: OidcParts;
  readonly #options: OidcOptions;

  constructor(parts: OidcParts, options: OidcOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  trusts(key: object): boolean {
    return this.#parts.keys.trusts(key);
  }

  verify(token: string): Promise<VerifiedToken> {
    const { issuer, audience, algorithms } = this.#options;
    const options = {
      issuer,
      audience,
      algorithms: [...algorithms],
      requiredClaims: ["exp", "sub"],
      clockTolerance: SKEW_S,
      currentDate: new Date(msOf(this.#parts.clock.nowMicros())),
    };
    const find = (header: JWSHeaderParameters) => this.#find(header);
    return verifiedBy(token, find, options, (claims) => principalOf(claims, this.#options));
  }

  async #find(header: JWSHeaderParameters) {
    const { keys, lookAgain } = this.#parts;
    const existing = await keys.find(header);
    if (existing !== undefined) return existing;
    await lookAgain();
    const found = await keys.find(header);
    if (found !== undefined) return found;
    if (!keys.isEmpty) throw new RefusedToken("unknown_key");
    const message = "the keys of the token's issuer are missing";
    throw new ServiceError("unavailable", "KEYS_UNAVAILABLE", message, { retryAfterMs: 5_000 });
  }
}

function principalOf(claims: JWTPayload, options: OidcOptions): VerifiedToken["principal"] {
  const { sub, exp } = claims;
  if (typeof sub !== "string" || !SUBJECT_FORM.test(sub)) throw new RefusedToken("claims");
  if (exp === undefined || !Number.isFinite(exp)) throw new RefusedToken("claims");
  return {
    id: sub,
    kind: "oidc",
    roles: rolesIn(claimAt(claims, options.rolesClaim)),
    projectId: projectIn(claimAt(claims, options.projectClaim)),
    sessionId: undefined,
    expiresAtMs: (exp + SKEW_S) * 1_000,
  };
}

/** Issuers have roles for other services too; a token without one of our roles allows nothing. */
function rolesIn(claim: unknown): readonly CallerRole[] {
  const words = typeof claim === "string" ? claim.split(" ") : claim;
  return Array.isArray(words) ? ROLES.filter((role) => words.includes(role)) : [];
}

/** An absent claim means every project. An unreadable claim must not mean the same. */
function projectIn(claim: unknown): string | undefined {
  if (claim === undefined) return undefined;
  if (typeof claim === "string" && PROJECT_FORM.test(claim)) return claim;
  throw new RefusedToken("claims");
}

/**
 * First the whole path as one name, because some issuers name claims by URLs; else each dot enters
 * an object. Undefined: absent. Null: unreadable, because a dot meets another value.
 */
function claimAt(claims: JWTPayload, path: string): unknown {
  if (Object.hasOwn(claims, path)) return claims[path];
  return path.split(".").reduce<unknown>((value, name) => {
    if (value === undefined || value === null) return value;
    if (typeof value !== "object" || Array.isArray(value)) return null;
    return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
  }, claims);
}

/**
 * The public keys of an OpenID Connect issuer, synchronised with a URL:
 *
 *   start ──► read ── taken ──► fresh ── refreshMs later, or a token names an unknown key
 *              ▲ │                ▲         │                       (once in coolDownMs)
 *              │ └─ failed ──► again, retryMs later; the known keys stay valid …
 *              └──────────────────┴─────────┘
 *                             … for staleMs since they were last read: then they are dropped, because
 *                             a key that was withdrawn meanwhile must not stay valid
 *
 * A service whose issuer is unreachable still starts and is ready: its other tokens work. Decision
 * 047 explains why this is not jose's own set of remote keys.
 */

const KEYS_MAX = 100;
const ASYMMETRIC = ["RSA", "EC", "OKP"];

const keySchema = z.looseObject({ kty: z.string(), kid: z.string().optional() });
const setSchema = z.object({
  keys: z.array(z.custom<JWK>((jwk) => keySchema.safeParse(jwk).success)).max(KEYS_MAX),
});

/** One key of a set; the object itself is its identity. */
interface KeyInForce {
  readonly jwk: JWK;
  /** Made at the first use. */
  resolve?: ReturnType<typeof createLocalJWKSet>;
}

/**
 * The keys from the last read. A key that is also in the next set stays the same object, so its
 * tokens stay accepted without a check. A key that is missing in the next set ends at once.
 */
export class IssuerKeys {
  #byText: ReadonlyMap<string, KeyInForce> = new Map();
  #inForce: ReadonlySet<object> = new Set();

  get isEmpty(): boolean {
    return this.#byText.size === 0;
  }

  /** True when the set differs from the previous one. Throws when the set is unusable. */
  take(text: string): boolean {
    const before = this.#byText;
    const byText = new Map<string, KeyInForce>();
    for (const jwk of keysIn(text)) {
      const own = JSON.stringify(jwk);
      byText.set(own, before.get(own) ?? { jwk });
    }
    // An issuer without a key can sign nothing, so an empty set is a mistake and not an update.
    if (byText.size === 0) throw textRefused("expected at least one key for signatures");
    this.#become(byText);
    return byText.size !== before.size || [...byText.keys()].some((own) => !before.has(own));
  }

  clear(): void {
    this.#become(new Map());
  }

  trusts(key: object): boolean {
    return this.#inForce.has(key);
  }

  /**
   * The one key that fits the header of a token; undefined without one, or with several. Each key
   * is a separate set for jose, which checks `use`, `key_ops`, `alg` and the curve.
   */
  async find(header: JWSHeaderParameters) {
    const { createLocalJWKSet, errors } = await import("jose");
    const { kid } = header;
    const named = [...this.#byText.values()].filter(({ jwk }) => (kid ?? jwk.kid) === jwk.kid);
    const tried = named.map(async (key) => {
      try {
        key.resolve ??= createLocalJWKSet({ keys: [key.jwk] });
        return { key, cryptoKey: await key.resolve(header) };
      } catch (error) {
        // The key does not fit, or this runtime does not support its kind; other keys may fit.
        if (error instanceof errors.JOSEError || error instanceof DOMException) return undefined;
        if (error instanceof TypeError) return undefined;
        throw error;
      }
    });
    const [found, another] = (await Promise.all(tried)).filter((one) => one !== undefined);
    return another === undefined ? found : undefined;
  }

  #become(byText: ReadonlyMap<string, KeyInForce>): void {
    this.#byText = byText;
    this.#inForce = new Set(byText.values());
  }
}

function keysIn(text: string): readonly JWK[] {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw textRefused("expected JSON");
  }
  const parsed = setSchema.safeParse(json);
  if (!parsed.success) throw textRefused(`expected {"keys":[…]}, a key set of at most ${KEYS_MAX}`);
  return parsed.data.keys.filter((jwk) => ASYMMETRIC.includes(jwk.kty ?? "") && jwk.use !== "enc");
}

export const ISSUER_URL_LIMITS = {
  /** The longest time that a withdrawn key stays in force. */
  refreshMs: 300_000,
  retryMs: 15_000,
  /** Anyone can send a token that names an unknown key. */
  coolDownMs: 10_000,
  staleMs: 24 * 3_600_000,
  fetchMs: 5_000,
  bytesMax: 1_048_576,
};

interface IssuerUrlParts {
  readonly log: Log;
  readonly metrics: Pick<Metrics, "keyRefreshes">;
  readonly clock: Clock;
  readonly keys: IssuerKeys;
}

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

export class IssuerUrl implements Unit {
  readonly #parts: IssuerUrlParts;
  readonly #url: string;
  readonly #limits: typeof ISSUER_URL_LIMITS;
  readonly #stopping = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;
  #readMs = Number.NEGATIVE_INFINITY;
  #triedMs = Number.NEGATIVE_INFINITY;
  #isFailing = false;

  constructor(parts: IssuerUrlParts, url: string, limits = ISSUER_URL_LIMITS) {
    this.#parts = parts;
    this.#url = url;
    this.#limits = limits;
  }

  async start(): Promise<void> {
    const { protocol, hostname } = new URL(this.#url);
    if (protocol === "http:" && !LOOPBACK.includes(hostname)) {
      this.#parts.log.warn({ url: this.#url }, "keys of the issuer come without TLS");
    }
    await this.#read();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    clearTimeout(this.#timer);
    await this.#reading;
  }

  /** A token names an unknown key. Resolves when further waiting cannot help. */
  async lookAgain(): Promise<void> {
    const waitedMs = this.#parts.clock.monotonicMs() - this.#triedMs;
    if (this.#reading !== undefined || waitedMs >= this.#limits.coolDownMs) await this.#read();
  }

  /** Runs once at a time; never rejects. */
  #read(): Promise<void> {
    if (this.#stopping.signal.aborted) return Promise.resolve();
    clearTimeout(this.#timer);
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
      if (this.#stopping.signal.aborted) return;
      const { retryMs, refreshMs } = this.#limits;
      this.#timer = setTimeout(() => void this.#read(), this.#isFailing ? retryMs : refreshMs);
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const { clock, keys, log, metrics } = this.#parts;
    const { fetchMs, bytesMax, staleMs } = this.#limits;
    const url = this.#url;
    this.#triedMs = clock.monotonicMs();
    try {
      const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(fetchMs)]);
      const isChanged = keys.take(await textAt(url, { signal, bytesMax }));
      this.#readMs = clock.monotonicMs();
      metrics.keyRefreshes.inc({ keys: "oidc", outcome: isChanged ? "changed" : "same" });
      if (isChanged || this.#isFailing) log.info({ url }, "keys of the issuer read");
      this.#isFailing = false;
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      metrics.keyRefreshes.inc({ keys: "oidc", outcome: "failed" });
      // Logs only the first failure in a row; the counter has the others.
      if (!this.#isFailing) log.error({ url, err: error }, "keys of the issuer not read");
      this.#isFailing = true;
      if (keys.isEmpty || clock.monotonicMs() - this.#readMs < staleMs) return;
      keys.clear();
      log.error({ url, staleMs }, "keys of the issuer dropped");
    }
  }
}

/** Follows no redirect: a person who controls it could change the keys. */
async function textAt(
  url: string,
  { signal, bytesMax }: { readonly signal: AbortSignal; readonly bytesMax: number },
): Promise<string> {
  const accept = "application/jwk-set+json, application/json";
  const response = await fetch(url, { signal, redirect: "manual", headers: { accept } });
  try {
    if (response.status !== 200) {
      throw textRefused(`expected status 200, got ${response.status}; redirects are not followed`);
    }
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > bytesMax) throw textRefused(`expected at most ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return withoutMark(Buffer.concat(chunks).toString("utf8"));
  } finally {
    // The connection of an answer that was not read to its end must be closed.
    await response.body?.cancel().catch(() => undefined);
  }
}
