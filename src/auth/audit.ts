import type { Clock } from "../base/clock.ts";
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

/** Records a second, of denials and of failed authentications each; a flood must not fill the disk. */
const RECORDS_PER_SECOND_MAX = 20;
const SPAN_MS = 1_000;
/** As long as the form of an id allows; whoever asks may have sent anything. */
const SESSION_ID_CHARS_MAX = 128;

export function createAudit(parts: {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
}): Audit {
  const { log, metrics } = parts;
  // Apart, because anybody can make the second kind by the thousand, and hide the first among it.
  const denials = new Budget(parts, "denied");
  const failures = new Budget(parts, "authenticate");
  return {
    denied(act, reason) {
      metrics.denied.inc({ action: act.action, reason });
      if (denials.take()) log.warn({ ...fieldsOf(act), reason }, "denied");
    },
    unauthenticated(reason) {
      metrics.denied.inc({ action: "authenticate", reason });
      if (failures.take()) log.warn({ audit: true, action: "authenticate", reason }, "denied");
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
    sessionId: sessionId?.slice(0, SESSION_ID_CHARS_MAX),
  };
}

/** So many records in a span that begins with its first; and, after it, how many were left out. */
class Budget {
  readonly #parts: { readonly log: Log; readonly clock: Clock };
  readonly #kind: string;
  #beganMs = Number.NEGATIVE_INFINITY;
  #taken = 0;
  #leftOut = 0;

  constructor(parts: { readonly log: Log; readonly clock: Clock }, kind: string) {
    this.#parts = parts;
    this.#kind = kind;
  }

  take(): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#beganMs >= SPAN_MS) {
      this.#beganMs = nowMs;
      this.#taken = 0;
    }
    if (this.#taken < RECORDS_PER_SECOND_MAX) {
      this.#taken += 1;
      return true;
    }
    // By a timer, because the flood may end here, and then no record comes that could say it.
    if (this.#leftOut === 0) setTimeout(() => this.#tell(), SPAN_MS).unref();
    this.#leftOut += 1;
    return false;
  }

  #tell(): void {
    const { log } = this.#parts;
    log.warn({ audit: true, kind: this.#kind, records: this.#leftOut }, "audit records left out");
    this.#leftOut = 0;
  }
}
