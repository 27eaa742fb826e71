import type { Clock } from "../base/clock.ts";
import { LineBudget, LINES_PER_KIND_MAX } from "../observability/call-records.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Action } from "./actions.ts";
import type { Principal } from "./principal.ts";

/**
 * `role`: none of the caller's roles allows the action. `scope`: a role allows it, but not for this
 * session.
 */
export type Denial = "role" | "scope";

export interface Act {
  readonly principal: Principal;
  readonly action: Action;
  readonly sessionId: string | undefined;
}

/** Records refused callers and completed acts of admins: records in the log, and a count. */
export interface Audit {
  denied(act: Act, reason: Denial): void;
  /** The caller is unknown; `reason` is a fixed word, and never a part of the request. */
  unauthenticated(reason: string): void;
  /** An act that only admins may do, after its completion. Its record is never left out. */
  done(act: Act, fields?: Readonly<Record<string, string | number>>): void;
}

// Counted separately: anyone can cause thousands of the second kind, and hide the first kind among
// them.
const KINDS = ["denied", "authenticate"] as const;
type Kind = (typeof KINDS)[number];

/** The longest valid id; a caller may have sent any text. */
const SESSION_ID_CHARS_MAX = 128;

export function createAudit(parts: {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
}): Audit {
  const { metrics, clock } = parts;
  const log = auditLog(parts.log);
  const tell = (leftOut: ReadonlyMap<string, number>): void => {
    for (const [kind, records] of leftOut) {
      log.warn({ audit: true, kind, records }, "audit records left out");
    }
  };
  const limits = { perKindMax: LINES_PER_KIND_MAX, allMax: KINDS.length * LINES_PER_KIND_MAX };
  const budget = new LineBudget({ clock, tell }, limits);
  const hasRecord = (kind: Kind): boolean => budget.take(kind);
  return {
    denied(act, reason) {
      metrics.denied.inc({ action: act.action, reason });
      if (hasRecord("denied")) log.warn({ ...fieldsOf(act), reason }, "denied");
    },
    unauthenticated(reason) {
      metrics.denied.inc({ action: "authenticate", reason });
      if (hasRecord("authenticate"))
        log.warn({ audit: true, action: "authenticate", reason }, "denied");
    },
    done(act, fields = {}) {
      log.info({ ...fields, ...fieldsOf(act) }, "done");
    },
  };
}

/** With its own level: LOG_LEVEL selects lines for operators, and never removes audit records. */
function auditLog(log: Log): Log {
  return log.level === "silent" ? log : log.child({}, { level: "info" });
}

function fieldsOf({ principal, action, sessionId }: Act): object {
  return {
    audit: true,
    actor: principal.id,
    actorKind: principal.kind,
    action,
    sessionId: sessionId?.slice(0, SESSION_ID_CHARS_MAX),
  };
}
