import type { Principal } from "./principal.ts";

/** A token that is signed, and by what. */
export interface Verified {
  readonly principal: Principal & { readonly expiresAtMs: number };
  /** Stands for the key, by its identity, for as long as the key is in force. */
  readonly key: object;
}

/** Knows one kind of signed token, and everything that has to be right about it. */
export interface TokenVerifier {
  readonly kind: "oidc" | "session";
  /** Rejects with a RefusedToken, or with a retryable ServiceError where nobody can tell. */
  verify(token: string): Promise<Verified>;
  /** False: the key is gone, and with it everything it signed. */
  trusts(key: object): boolean;
}
