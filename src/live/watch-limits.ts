/** The limits of watches: one for the service, and one for each watched session. */
import type { ServiceError } from "@session-ledger/base/errors";
import { Budget, overloaded, type Reservation } from "../base/budget.ts";
import type { LiveLimits } from "./limits.ts";

/** Reserves a part for the caller, or throws the refusal. */
export type Acquire = (limit: Budget, refusal: () => ServiceError) => Reservation;

export class WatchLimits {
  readonly service: Budget;
  readonly #sessions = new Map<string, Budget>();
  readonly #perSessionMax: number;

  constructor(limits: Pick<LiveLimits, "watchersMax" | "watchersPerSessionMax">) {
    this.service = new Budget({ max: limits.watchersMax });
    this.#perSessionMax = limits.watchersPerSessionMax;
  }

  /** For a watch of all sessions. */
  acquire(acquire: Acquire): Reservation {
    return acquire(this.service, () => tooMany("the service", this.service.max));
  }

  /** For a watch of one session. Without `acquire` the service itself watches. */
  acquireFor(
    sessionId: string,
    acquire: Acquire = (limit, refusal) => limit.mustReserve(undefined, refusal),
  ): readonly Reservation[] {
    const max = this.#perSessionMax;
    const ofSession = this.#sessions.get(sessionId) ?? new Budget({ max });
    const lease = this.acquire(acquire);
    try {
      const second = acquire(ofSession, () => tooMany("the session", max));
      this.#sessions.set(sessionId, ofSession);
      return [lease, second];
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  release(sessionId: string, leases: readonly Reservation[]): void {
    for (const lease of leases) lease.release();
    if (this.#sessions.get(sessionId)?.used === 0) this.#sessions.delete(sessionId);
  }
}

function tooMany(of: string, max: number): ServiceError {
  return overloaded("TOO_MANY_WATCHERS", `${of} has ${max} watchers, and takes no more`);
}
