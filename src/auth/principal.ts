/** The caller, in the form that every protocol passes to the handlers. */

/** A caller may do everything that any of its roles may do; the table is in actions.ts. */
export const ROLES = ["admin", "editor", "viewer", "runner", "service"] as const;
export type CallerRole = (typeof ROLES)[number];

/** The name of a project, in a token. */
export const PROJECT_FORM = /^[^\p{Cc}\p{Cs}]{1,256}$/u;

export interface Principal {
  /** The token's id, unique within its kind: a `sub` may equal the id of a static token. */
  readonly id: string;
  readonly kind: "anonymous" | "static" | "oidc" | "session";
  readonly roles: readonly CallerRole[];
  /** The principal sees only the sessions of this project. */
  readonly projectId: string | undefined;
  /** The principal sees only this session. */
  readonly sessionId: string | undefined;
  /** Wall-clock time; after it no call begins, and streams end. */
  readonly expiresAtMs: number | undefined;
}

/** Every caller when no token is configured. */
export const ANONYMOUS: Principal = {
  id: "anonymous",
  kind: "anonymous",
  roles: ["admin"],
  projectId: undefined,
  sessionId: undefined,
  expiresAtMs: undefined,
};

/** The name of a writer on its rows: `static:ops`, `oidc:f81d4fae`, `session:ID:runner`. */
export function actorOf({ kind, id }: Principal): string | undefined {
  if (kind === "anonymous") return undefined;
  // The id of a session token already has this prefix.
  return kind === "session" ? id : `${kind}:${id}`;
}

/** The maker of a session: only the id, by which clients know their users. */
export function userIdOf({ kind, id }: Principal): string | undefined {
  return kind === "anonymous" ? undefined : id;
}

/** The principal sees every session, including future ones. */
export function isUnscoped({ projectId, sessionId }: Principal): boolean {
  return projectId === undefined && sessionId === undefined;
}
