import type { Clock } from "../base/clock.ts";
import { LineBudget, LINES_PER_KIND_MAX } from "../observability/line-budget.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Action } from "./actions.ts";
import type { Principal } from "./principal.ts";

/** `role`: none of its roles may. `scope`: it may, but not there. */
export type Denial = "role" | "scope";

export interface Act {
  readonly principal: Principal;
  readonly action: Action;
  readonly sessionId: string | undefined;
}

/** Who was kept from what, and which acts of admins were done: records in the log, and a count. */
export interface Audit {
  denied(act: Act, reason: Denial): void;
  /** Nobody knows who it was; `reason` is one of our words, never a part of what came. */
  unauthenticated(reason: string): void;
  /** An act that only admins may do, after it is done. Its record is never left out. */
  done(act: Act, fields?: Readonly<Record<string, string | number>>): void;
}

// Apart, because anybody can make the second kind by the thousand, and hide the first among it.
const KINDS = ["denied", "authenticate"] as const;
type Kind = (typeof KINDS)[number];

/** As long as the form of an id allows; whoever asks may have sent anything. */
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

/** With a level of its own: LOG_LEVEL chooses what an operator reads, and not what is on record. */
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
