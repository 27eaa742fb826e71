/** The limits of watches: one for the service, and one for each watched session. */
import { ServiceError } from "@session-ledger/base/errors";
import { type Lease, FairShare } from "../base/fair-share.ts";
import type { LiveLimits } from "./limits.ts";

/** Acquires a lease for the caller, or throws the refusal. */
export type Acquire = (limit: FairShare, refusal: () => ServiceError) => Lease;

export class WatchLimits {
  readonly service: FairShare;
  readonly #sessions = new Map<string, FairShare>();
  readonly #perSessionMax: number;

  constructor(limits: Pick<LiveLimits, "watchersMax" | "watchersPerSessionMax">) {
    this.service = new FairShare({ max: limits.watchersMax });
    this.#perSessionMax = limits.watchersPerSessionMax;
  }

  /** For a watch of all sessions. */
  acquire(acquire: Acquire): Lease {
    return acquire(this.service, () => tooMany("the service", this.service.max));
  }

  /** For a watch of one session. Without `acquire` all watches belong to one caller. */
  acquireFor(sessionId: string, acquire: Acquire = acquireForAll): readonly Lease[] {
    const max = this.#perSessionMax;
    const ofSession = this.#sessions.get(sessionId) ?? new FairShare({ max });
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

  release(sessionId: string, leases: readonly Lease[]): void {
    for (const lease of leases) lease.release();
    if (this.#sessions.get(sessionId)?.used === 0) this.#sessions.delete(sessionId);
  }
}

const ALL = { name: undefined, connection: {} };

function acquireForAll(limit: FairShare, refusal: () => ServiceError): Lease {
  const lease = limit.acquire(ALL, 1, () => undefined);
  if (lease === undefined) throw refusal();
  return lease;
}

function tooMany(of: string, max: number): ServiceError {
  const message = `${of} has ${max} watchers, and takes no more`;
  return new ServiceError("overloaded", "TOO_MANY_WATCHERS", message, { retryAfterMs: 1_000 });
}
