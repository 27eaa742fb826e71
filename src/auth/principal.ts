/** Who is calling, as every protocol hands it to the handlers. */

/** What a caller may do is the union of its roles; the table is in actions.ts. */
export const ROLES = ["admin", "editor", "viewer", "runner"] as const;
export type Role = (typeof ROLES)[number];

export interface Principal {
  /**
   * Of the token, and named in audit records. Only one of its kind has it: what an issuer writes as `sub`
   * may be the id of a static token.
   */
  readonly id: string;
  readonly kind: "anonymous" | "static" | "oidc" | "session";
  readonly roles: readonly Role[];
  /** It sees the sessions of this project only. */
  readonly projectId: string | undefined;
  /** It sees this session only. */
  readonly sessionId: string | undefined;
  /** Wall clock: calls end and begin no more. */
  readonly expiresAtMs: number | undefined;
}

/** Everybody, when no token is configured; the service is then on loopback, or told to be open. */
export const ANONYMOUS: Principal = {
  id: "anonymous",
  kind: "anonymous",
  roles: ["admin"],
  projectId: undefined,
  sessionId: undefined,
  expiresAtMs: undefined,
};

/**
 * Who is named as the writer of what it writes, kind and all: `static:ops`, `oidc:f81d4fae`,
 * `session:ID:runner`. Nobody, when nobody was asked who it is.
 */
export function actorOf({ kind, id }: Principal): string | undefined {
  if (kind === "anonymous") return undefined;
  return kind === "session" ? id : `${kind}:${id}`; // The id of a session token begins so.
}

/** Who is named as the maker of a session: by the id alone, which is what clients know their users by. */
export function userIdOf({ kind, id }: Principal): string | undefined {
  return kind === "anonymous" ? undefined : id;
}

/** It sees every session there is, and what is not there yet. */
export function isUnscoped({ projectId, sessionId }: Principal): boolean {
  return projectId === undefined && sessionId === undefined;
}
