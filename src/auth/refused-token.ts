import type { CryptoKey, JWSHeaderParameters, JWTPayload, JWTVerifyOptions } from "jose";
import { codeOf, ServiceError } from "@session-ledger/base/errors";
import type { Principal } from "./principal.ts";

/** The exact cause, for the counters and the audit record; the caller learns less. */
type TokenRefusal =
  | "missing"
  | "differing"
  | "form"
  | "unknown"
  | "algorithm"
  | "header"
  | "unknown_key"
  | "signature"
  | "issuer"
  | "audience"
  | "claims"
  | "not_yet_valid"
  | "expired";

/** Three causes that the caller may learn, because it can react; all others have one text. */
const TEXTS: Readonly<Partial<Record<TokenRefusal, string>>> = {
  missing: "a bearer token is required",
  differing: "authorization is given more than once, with different values",
  expired: "the bearer token has expired",
};

/** Causes that time or new keys may remove; such a token is checked again. */
const PASSING: readonly TokenRefusal[] = ["unknown_key", "not_yet_valid"];

/** Has the code UNAUTHENTICATED. */
export class RefusedToken extends ServiceError {
  readonly refusal: TokenRefusal;

  constructor(refusal: TokenRefusal) {
    const text = TEXTS[refusal] ?? "the bearer token is not accepted";
    super("unauthenticated", "UNAUTHENTICATED", text);
    this.refusal = refusal;
  }

  /** True when the same token will always be refused for the same reason. */
  get isFinal(): boolean {
    return !PASSING.includes(this.refusal);
  }
}

/** The fault of a configured text; the message is for the operator, and quotes nothing. */
export function textRefused(message: string): ServiceError {
  return new ServiceError("invalid_argument", "INVALID_REQUEST", message);
}

/** Codes of jose's errors: https://github.com/panva/jose/blob/main/docs/util/errors/README.md. */
const BY_CODE: Readonly<Record<string, TokenRefusal>> = {
  ERR_JWT_EXPIRED: "expired",
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: "signature",
  ERR_JOSE_ALG_NOT_ALLOWED: "algorithm",
  ERR_JWT_INVALID: "claims",
};

const BY_CLAIM: Readonly<Record<string, TokenRefusal>> = {
  iss: "issuer",
  aud: "audience",
  nbf: "not_yet_valid",
};

/** The refusal for an error of the verification; anything but jose's own errors is a defect. */
function refusedBy(cause: unknown): ServiceError {
  if (cause instanceof ServiceError) return cause;
  const code = codeOf(cause);
  if (!/^ERR_J[A-Z]{2}/.test(code)) return ServiceError.from(cause);
  if (code === "ERR_JWT_CLAIM_VALIDATION_FAILED") {
    const claim = cause instanceof Error && "claim" in cause ? String(cause.claim) : "";
    return new RefusedToken(BY_CLAIM[claim] ?? "claims");
  }
  return new RefusedToken(BY_CODE[code] ?? "header");
}

/** The result for a signed token: the caller and the key. */
export interface VerifiedToken {
  readonly principal: Principal & { readonly expiresAtMs: number };
  /** Identifies the key by its object identity, as long as the key is in force. */
  readonly key: object;
}

/** The key that fits the header of a token; the object `key` is its identity. */
interface FoundKey {
  readonly key: object;
  readonly cryptoKey: CryptoKey;
}

/** Verifies a token by jose, and reads the principal only then. */
export async function verifiedBy(
  token: string,
  find: (header: JWSHeaderParameters) => Promise<FoundKey>,
  options: JWTVerifyOptions,
  principalOf: (claims: JWTPayload) => VerifiedToken["principal"],
): Promise<VerifiedToken> {
  let key: object = {};
  try {
    const { jwtVerify } = await import("jose");
    const keyOf = async (header: JWSHeaderParameters): Promise<CryptoKey> => {
      const found = await find(header);
      key = found.key;
      return found.cryptoKey;
    };
    const { payload } = await jwtVerify(token, keyOf, options);
    return { principal: principalOf(payload), key };
  } catch (error) {
    throw refusedBy(error);
  }
}

/** Verifies one kind of signed token completely. */
export interface TokenVerifier {
  /** Rejects with a RefusedToken, or with a retryable ServiceError when it cannot decide. */
  verify(token: string): Promise<VerifiedToken>;
  /** False: the key is gone, and all tokens it signed are invalid. */
  trusts(key: object): boolean;
}
