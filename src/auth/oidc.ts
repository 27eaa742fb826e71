/**
 * JWTs of an OpenID Connect issuer. No claim is read before jose has verified the signature with a
 * key of the issuer and an allowed algorithm. Then issuer, audience and times are checked, and only
 * then the principal is read.
 */
import type { JWSHeaderParameters, JWTPayload } from "jose";
import type { Clock } from "../base/clock.ts";
import type { IssuerKeys } from "./issuer-keys.ts";
import { ROLES, type Role } from "./principal.ts";
import {
  cannotTell,
  RefusedToken,
  refusedBy,
  type TokenVerifier,
  type Verified,
} from "./refused-token.ts";

export interface OidcOptions {
  readonly issuer: string;
  readonly audience: string;
  readonly algorithms: readonly string[];
  readonly rolesClaim: string;
  readonly projectClaim: string;
}

export interface OidcParts {
  readonly clock: Clock;
  readonly keys: IssuerKeys;
  /** A token names an unknown key; resolves when the key may have arrived. */
  readonly lookAgain: () => Promise<void>;
}

/** The allowed difference between the issuer's clock and ours. */
const SKEW_S = 30;
const NO_KEYS_RETRY_MS = 5_000;
const PROJECT_CHARS_MAX = 256;
/** OpenID Connect Core, section 2: `sub` has at most 255 characters. */
const SUBJECT_FORM = /^[^\p{Cc}\p{Cs}]{1,255}$/u;
const PROJECT_FORM = new RegExp(`^[^\\p{Cc}\\p{Cs}]{1,${PROJECT_CHARS_MAX}}$`, "u");

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

  async verify(token: string): Promise<Verified> {
    const { issuer, audience, algorithms } = this.#options;
    const signedWith: { key?: object } = {};
    try {
      const { jwtVerify } = await import("jose");
      const { payload } = await jwtVerify(
        token,
        async (header) => {
          const { key, cryptoKey } = await this.#find(header);
          signedWith.key = key;
          return cryptoKey;
        },
        {
          issuer,
          audience,
          algorithms: [...algorithms],
          requiredClaims: ["exp", "sub"],
          clockTolerance: SKEW_S,
          currentDate: new Date(Number(this.#parts.clock.nowMicros() / 1_000n)),
        },
      );
      return { principal: principalOf(payload, this.#options), key: signedWith.key ?? {} };
    } catch (error) {
      throw refusedBy(error);
    }
  }

  async #find(header: JWSHeaderParameters) {
    const { keys, lookAgain } = this.#parts;
    const known = await keys.find(header);
    if (known !== undefined) return known;
    await lookAgain();
    const found = await keys.find(header);
    if (found !== undefined) return found;
    if (!keys.isEmpty) throw new RefusedToken("unknown_key");
    throw cannotTell("the keys of the token's issuer are not there", NO_KEYS_RETRY_MS);
  }
}

function principalOf(claims: JWTPayload, options: OidcOptions): Verified["principal"] {
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
function rolesIn(claim: unknown): readonly Role[] {
  const words: readonly unknown[] = typeof claim === "string" ? claim.split(" ") : asList(claim);
  return ROLES.filter((role) => words.includes(role));
}

function asList(claim: unknown): readonly unknown[] {
  return Array.isArray(claim) ? claim : [];
}

/** An absent claim means every project. An unreadable claim must not mean the same. */
function projectIn(claim: unknown): string | undefined {
  if (claim === undefined) return undefined;
  if (typeof claim === "string" && PROJECT_FORM.test(claim)) return claim;
  throw new RefusedToken("claims");
}

/**
 * First the whole path as one name, because some issuers name claims by URLs; else each dot enters
 * an object. Undefined: the claim is absent. Null: a dot meets a value that is not an object, so
 * the claim is unreadable.
 */
function claimAt(claims: JWTPayload, path: string): unknown {
  if (Object.hasOwn(claims, path)) return claims[path];
  return path.split(".").reduce<unknown>((value, name) => {
    if (value === undefined || value === null) return value;
    if (typeof value !== "object" || Array.isArray(value)) return null;
    return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
  }, claims);
}
