import { errors } from "jose";
import { ServiceError } from "../base/errors.ts";

/** The exact cause, for the counters and the audit record; the caller learns less. */
export type Refusal =
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

/**
 * Three causes that the caller may learn, because it can react to them; all others have one text.
 */
const TEXTS: Readonly<Partial<Record<Refusal, string>>> = {
  missing: "a bearer token is required",
  differing: "authorization is given more than once, with different values",
  expired: "the bearer token has expired",
};

/** Causes that time or new keys may remove; such a token is checked again. */
const PASSING: readonly Refusal[] = ["unknown_key", "not_yet_valid"];

/** Has the code UNAUTHENTICATED. */
export class RefusedToken extends ServiceError {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    const text = TEXTS[refusal] ?? "the bearer token is not accepted";
    super("unauthenticated", "UNAUTHENTICATED", text);
    this.refusal = refusal;
  }

  /** True when the same token will always be refused for the same reason. */
  get isFinal(): boolean {
    return !PASSING.includes(this.refusal);
  }
}

/** No verdict on the token, because the keys are unavailable: a retry may succeed. */
export function cannotTell(message: string, retryAfterMs: number): ServiceError {
  return new ServiceError("unavailable", "KEYS_UNAVAILABLE", message, { retryAfterMs });
}

const BY_CLAIM: Readonly<Record<string, Refusal>> = {
  iss: "issuer",
  aud: "audience",
  nbf: "not_yet_valid",
};

/** The refusal for an error of the verification; anything but jose's own errors is a defect. */
export function refusedBy(cause: unknown): ServiceError {
  if (cause instanceof ServiceError) return cause;
  if (cause instanceof errors.JWTExpired) return new RefusedToken("expired");
  if (cause instanceof errors.JWTClaimValidationFailed) {
    return new RefusedToken(BY_CLAIM[cause.claim] ?? "claims");
  }
  if (cause instanceof errors.JWSSignatureVerificationFailed) return new RefusedToken("signature");
  if (cause instanceof errors.JOSEAlgNotAllowed) return new RefusedToken("algorithm");
  if (cause instanceof errors.JWTInvalid) return new RefusedToken("claims");
  if (cause instanceof errors.JOSEError) return new RefusedToken("header");
  return ServiceError.from(cause);
}
