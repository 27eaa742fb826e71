import type { Principal } from "./principal.ts";

/** The result for a signed token: the caller and the key. */
export interface Verified {
  readonly principal: Principal & { readonly expiresAtMs: number };
  /** Identifies the key by its object identity, as long as the key is in force. */
  readonly key: object;
}

/** Verifies one kind of signed token completely. */
export interface TokenVerifier {
  readonly kind: "oidc" | "session";
  /** Rejects with a RefusedToken, or with a retryable ServiceError when it cannot decide. */
  verify(token: string): Promise<Verified>;
  /** False: the key is gone, and all tokens it signed are invalid. */
  trusts(key: object): boolean;
}
