/**
 * Decides whether a principal may do an action on a session. The roles are checked first; their
 * refusal tells nothing about the session. The scope is checked next; its refusal is the same
 * answer as for a session that does not exist.
 *
 *   role refused ──► PERMISSION_DENIED
 *   role granted ──► unscoped ───────────────────────────────────────────► granted
 *                    bound to a session: this one ───────────────────────► granted
 *                                        another, there or not ──────────► NOT_FOUND
 *                    of a project: known to be its own ──────────────────► granted
 *                                  else look up the owner: it ────────────► granted, and known
 *                                                        none, others ───► NOT_FOUND
 *
 * Only grants are answered from memory. A session of another project is always looked up, even if
 * it is in memory for its owner. So a refusal takes the same time as for a session that never
 * existed.
 */
import { BoundedMap } from "../base/bounded-map.ts";
import { ServiceError } from "../base/errors.ts";
import { type Action, ALLOWED, REACH } from "./actions.ts";
import type { Act, Audit, Denial } from "./audit.ts";
import { isUnscoped, type Principal } from "./principal.ts";

export interface SessionOwners {
  /** undefined: the session never existed. A deleted session still has its owner. */
  ownerOf(sessionId: string): Promise<{ readonly projectId: string | undefined } | undefined>;
}

export interface Authorizer {
  /**
   * Throws or rejects with PERMISSION_DENIED or NOT_FOUND. Synchronous for unscoped callers and
   * known sessions. Without a session id only the roles are checked. For an action on one session,
   * the id may be missing only when its form is wrong.
   */
  authorize(
    principal: Principal,
    action: Action,
    sessionId: string | undefined,
  ): void | Promise<void>;
}

export interface AuthorizerParts {
  readonly owners: SessionOwners;
  readonly audit: Audit;
  /** Makes the error of a session that does not exist, the same for every caller. */
  readonly notFound: (sessionId: string) => ServiceError;
}

/** Sessions whose project is remembered; it never changes. About 200 bytes each. */
const OWNERS_MAX = 10_000;

export function createAuthorizer(
  parts: AuthorizerParts,
  { ownersMax } = { ownersMax: OWNERS_MAX },
): Authorizer {
  return new RoleAndScope(parts, ownersMax);
}

class RoleAndScope implements Authorizer {
  readonly #parts: AuthorizerParts;
  /** Keyed by session; the longest unused entry comes first. */
  readonly #projects: BoundedMap<string, string>;

  constructor(parts: AuthorizerParts, ownersMax: number) {
    this.#parts = parts;
    this.#projects = new BoundedMap(ownersMax);
  }

  authorize(
    principal: Principal,
    action: Action,
    sessionId: string | undefined,
  ): void | Promise<void> {
    const act: Act = { principal, action, sessionId };
    const roles = ALLOWED[action];
    if (!principal.roles.some((role) => roles.includes(role))) throw this.#forbid(act, "role");
    if (isUnscoped(principal)) return;
    const reach = REACH[action];
    if (reach === "project" && principal.sessionId !== undefined) throw this.#forbid(act, "scope");
    if (reach !== "session" || sessionId === undefined) return;
    if (principal.sessionId !== undefined && principal.sessionId !== sessionId) {
      throw this.#hide(act, sessionId);
    }
    if (principal.projectId === undefined) return;
    if (this.#projects.use(sessionId) === principal.projectId) return;
    return this.#ask(act, sessionId, principal.projectId);
  }

  async #ask(act: Act, sessionId: string, projectId: string): Promise<void> {
    const owner = await this.#parts.owners.ownerOf(sessionId);
    if (owner?.projectId !== projectId) throw this.#hide(act, sessionId);
    this.#projects.set(sessionId, projectId);
  }

  #forbid(act: Act, reason: Denial): ServiceError {
    this.#parts.audit.denied(act, reason);
    const { action } = act;
    return new ServiceError(
      "permission_denied",
      "PERMISSION_DENIED",
      `the token does not allow ${action}`,
    );
  }

  #hide(act: Act, sessionId: string): ServiceError {
    this.#parts.audit.denied(act, "scope");
    return this.#parts.notFound(sessionId);
  }
}
