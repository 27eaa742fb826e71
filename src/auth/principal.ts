/** Who is calling, as every protocol hands it to the handlers. */

/** What a caller may do is the union of its roles; the table is in actions.ts. */
export const ROLES = ["admin", "editor", "viewer", "runner"] as const;
export type Role = (typeof ROLES)[number];

export interface Principal {
  /** Of the token: stored as the actor of what it writes, and named in audit records. */
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

/** Who is named as the writer of what it writes: nobody, when nobody was asked who it is. */
export function actorOf({ kind, id }: Principal): string | undefined {
  return kind === "anonymous" ? undefined : id;
}

/** It sees every session there is, and what is not there yet. */
export function isUnscoped({ projectId, sessionId }: Principal): boolean {
  return projectId === undefined && sessionId === undefined;
}
