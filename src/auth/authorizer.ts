/**
 * Decides whether a principal may do an action on a session. The roles are checked first; their
 * refusal reveals nothing about the session. The scope is checked next; its refusal is the same
 * answer as for a session that does not exist.
 *
 *   role refused ──► PERMISSION_DENIED
 *   role granted ──► unscoped ───────────────────────────────────────────► granted
 *                    bound to a session: this one ───────────────────────► granted
 *                                        another, existing or not ──────────► NOT_FOUND
 *                    of a project: known to be its own ──────────────────► granted
 *                                  else look up the owner: it ────────────► granted, and known
 *                                                        none, others ───► NOT_FOUND
 *
 * Only grants are answered from memory. A session of another project is always looked up, even if
 * it is in memory for its owner. So a refusal takes the same time as for a session that never
 * existed.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { ID_BYTES_MAX, isSessionId } from "@session-ledger/base/ids";
import { LineBudget } from "../observability/call-records.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { type Action, RULES } from "./actions.ts";
import { isUnscoped, type Principal } from "./principal.ts";

interface AuthorizerParts {
  readonly owners: {
    /** undefined: the session never existed. A deleted session still has its owner. */
    ownerOf(sessionId: string): Promise<{ readonly projectId: string | undefined } | undefined>;
  };
  readonly audit: Audit;
  /** Makes the error of a session that does not exist, the same for every caller. */
  readonly notFound: (sessionId: string) => ServiceError;
}

export type Authorizer = Pick<RoleAndScope, "authorize">;

export class RoleAndScope {
  readonly #parts: AuthorizerParts;
  /** The project of a session never changes. About 200 bytes each. */
  readonly #projects: BoundedMap<string, string>;

  constructor(parts: AuthorizerParts, { ownersMax } = { ownersMax: 10_000 }) {
    this.#parts = parts;
    this.#projects = new BoundedMap(ownersMax);
  }

  /**
   * Throws or rejects with PERMISSION_DENIED or NOT_FOUND. Synchronous for unscoped callers and
   * cached sessions. Without a session id, or with one of a wrong form, only the roles are checked.
   */
  authorize(
    principal: Principal,
    action: Action,
    sessionId: string | undefined,
  ): void | Promise<void> {
    const act: Act = { principal, action, sessionId };
    const denial = denialOf(principal, action);
    if (denial !== undefined) throw this.#forbid(act, denial);
    if (isUnscoped(principal) || !NAMES_ONE.has(RULES[action].reach)) return;
    if (sessionId === undefined || !isSessionId(sessionId)) return;
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

const NAMES_ONE: ReadonlySet<string> = new Set(["session", "copy"]);

/** Why a principal may not do an action on any session; undefined: it may, on its sessions. */
export function denialOf(principal: Principal, action: Action): Denial | undefined {
  const { reach, roles } = RULES[action];
  if (!principal.roles.some((role) => roles.includes(role))) return "role";
  const isBound = (reach === "project" || reach === "copy") && principal.sessionId !== undefined;
  return isBound ? "scope" : undefined;
}

/** `role`: no role of the caller allows the action. `scope`: it is not allowed for this session. */
type Denial = "role" | "scope";

interface Act {
  readonly principal: Principal;
  readonly action: Action;
  readonly sessionId: string | undefined;
}

/** Logs and counts refused callers, completed acts of admins, and runs that a claim has ended. */
export interface Audit {
  denied(act: Act, reason: Denial): void;
  /** The caller is unknown; `reason` is a fixed word, and never a part of the request. */
  unauthenticated(reason: string): void;
  /** An act of an admin, or a take-over, after its completion. Its record is never left out. */
  done(act: Act, fields?: Readonly<Record<string, string | number>>): void;
}

export function createAudit(parts: {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
}): Audit {
  const { metrics, clock } = parts;
  // With its own level: LOG_LEVEL selects lines for operators, and never removes audit records.
  const isSilent = parts.log.level === "silent";
  const log = isSilent ? parts.log : parts.log.child({}, { level: "info" });
  const report = (leftOut: ReadonlyMap<string, number>): void => {
    for (const [kind, records] of leftOut) {
      log.warn({ audit: true, kind, records }, "audit records left out");
    }
  };
  // Counted separately: anyone can cause thousands of the second kind, and would hide the first.
  const budget = new LineBudget({ clock, report }, Number.POSITIVE_INFINITY);
  return {
    denied(act, reason) {
      metrics.denied.inc({ action: act.action, reason });
      if (budget.take("denied")) log.warn({ ...fieldsOf(act), reason }, "denied");
    },
    unauthenticated(reason) {
      metrics.denied.inc({ action: "authenticate", reason });
      if (budget.take("authenticate"))
        log.warn({ audit: true, action: "authenticate", reason }, "denied");
    },
    done(act, fields = {}) {
      log.info({ ...fields, ...fieldsOf(act) }, "done");
    },
  };
}

function fieldsOf({ principal, action, sessionId }: Act): object {
  return {
    audit: true,
    actor: principal.id,
    actorKind: principal.kind,
    action,
    sessionId: sessionId?.slice(0, ID_BYTES_MAX), // A caller may have sent any text.
  };
}
