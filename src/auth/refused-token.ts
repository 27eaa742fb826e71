import { errors } from "jose";
import { ServiceError } from "../base/errors.ts";

/** What was wrong, for the counters and the audit record; the caller is told less. */
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

/** Three things a caller may know, because it can do something about them; the rest has one text. */
const TEXTS: Readonly<Partial<Record<Refusal, string>>> = {
  missing: "a bearer token is required",
  differing: "authorization is given more than once, with different values",
  expired: "the bearer token has expired",
};

/** What time or other keys may change: to refuse it again, somebody has to look again. */
const PASSING: readonly Refusal[] = ["unknown_key", "not_yet_valid"];

/** UNAUTHENTICATED. */
export class RefusedToken extends ServiceError {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    const text = TEXTS[refusal] ?? "the bearer token is not accepted";
    super("unauthenticated", "UNAUTHENTICATED", text);
    this.refusal = refusal;
  }

  /** The same token will be refused for the same reason. */
  get isFinal(): boolean {
    return !PASSING.includes(this.refusal);
  }
}

/** No word on the token, whose keys are not there: whoever asks again may be let in. */
export function cannotTell(message: string, retryAfterMs: number): ServiceError {
  return new ServiceError("unavailable", "KEYS_UNAVAILABLE", message, { retryAfterMs });
}

const BY_CLAIM: Readonly<Record<string, Refusal>> = {
  iss: "issuer",
  aud: "audience",
  nbf: "not_yet_valid",
};

/** What the verification of a signed token threw; anything but jose's own verdicts is a defect. */
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
