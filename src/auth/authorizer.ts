/**
 * May this principal do that, there? First its roles, whose refusal says nothing of the session; then
 * its scope, whose refusal is the answer to a session that does not exist.
 *
 *   role refused ──► PERMISSION_DENIED
 *   role granted ──► unscoped ───────────────────────────────────────────► granted
 *                    bound to a session: this one ───────────────────────► granted
 *                                        another, there or not ──────────► NOT_FOUND
 *                    of a project: known to be its own ──────────────────► granted
 *                                  else ask who owns it: it ─────────────► granted, and known
 *                                                        nobody, others ─► NOT_FOUND
 *
 * Only what was granted is answered from memory. A session of others, which is known because its owners
 * use it, is looked up all the same, so that a refusal takes as long for it as for one that never was.
 */
import { ServiceError } from "../base/errors.ts";
import { type Action, ALLOWED, REACH } from "./actions.ts";
import type { Act, Audit, Denial } from "./audit.ts";
import { isUnscoped, type Principal } from "./principal.ts";

export interface SessionOwners {
  /** undefined: no such session (never was). A deleted one still has its owner. */
  ownerOf(sessionId: string): Promise<{ readonly projectId: string | undefined } | undefined>;
}

export interface Authorizer {
  /**
   * Throws or rejects with PERMISSION_DENIED or NOT_FOUND. Synchronous for unscoped callers and known
   * sessions. Without a session id only the roles are looked at: where the action names a session that
   * is for an id whose form is wrong, and for nothing else.
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
  /** The error of a session that does not exist, as every caller gets it. */
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
  readonly #ownersMax: number;
  /** By session, the longest unused first. */
  readonly #projects = new Map<string, string>();

  constructor(parts: AuthorizerParts, ownersMax: number) {
    this.#parts = parts;
    this.#ownersMax = ownersMax;
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
    if (this.#knownProjectOf(sessionId) === principal.projectId) return;
    return this.#ask(act, sessionId, principal.projectId);
  }

  async #ask(act: Act, sessionId: string, projectId: string): Promise<void> {
    const owner = await this.#parts.owners.ownerOf(sessionId);
    if (owner?.projectId !== projectId) throw this.#hide(act, sessionId);
    this.#projects.set(sessionId, projectId);
    if (this.#projects.size <= this.#ownersMax) return;
    for (const oldest of this.#projects.keys()) {
      this.#projects.delete(oldest);
      break;
    }
  }

  #knownProjectOf(sessionId: string): string | undefined {
    const projectId = this.#projects.get(sessionId);
    if (projectId === undefined) return undefined;
    this.#projects.delete(sessionId);
    this.#projects.set(sessionId, projectId);
    return projectId;
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
