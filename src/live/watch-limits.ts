/** The seats of watches: those of the service, and those of each watched session. */
import { ServiceError } from "@session-ledger/base/errors";
import { type Charge, FairShare } from "../base/fair-share.ts";
import type { LiveLimits } from "./limits.ts";

/** Takes a seat for the caller, or throws the refusal. */
export type Acquire = (seats: FairShare, refusal: () => ServiceError) => Charge;

export class WatchLimits {
  readonly service: FairShare;
  readonly #sessions = new Map<string, FairShare>();
  readonly #perSessionMax: number;

  constructor(limits: Pick<LiveLimits, "watchersMax" | "watchersPerSessionMax">) {
    this.service = new FairShare({ max: limits.watchersMax });
    this.#perSessionMax = limits.watchersPerSessionMax;
  }

  /** For a watch of all sessions. */
  acquire(takeSeat: Acquire): Charge {
    return takeSeat(this.service, () => tooMany("the service", this.service.max));
  }

  /** For a watch of one session. Without `takeSeat` all watches belong to one caller. */
  acquireFor(sessionId: string, takeSeat: Acquire = acquireForAll): readonly Charge[] {
    const max = this.#perSessionMax;
    const ofSession = this.#sessions.get(sessionId) ?? new FairShare({ max });
    const seat = this.acquire(takeSeat);
    try {
      const second = takeSeat(ofSession, () => tooMany("the session", max));
      this.#sessions.set(sessionId, ofSession);
      return [seat, second];
    } catch (error) {
      seat.release();
      throw error;
    }
  }

  release(sessionId: string, seats: readonly Charge[]): void {
    for (const seat of seats) seat.release();
    if (this.#sessions.get(sessionId)?.held === 0) this.#sessions.delete(sessionId);
  }
}

const ALL = { name: undefined, connection: {} };

function acquireForAll(seats: FairShare, refusal: () => ServiceError): Charge {
  const seat = seats.take(ALL, 1, () => undefined);
  if (seat === undefined) throw refusal();
  return seat;
}

function tooMany(of: string, max: number): ServiceError {
  const message = `${of} has ${max} watchers, and takes no more`;
  return new ServiceError("overloaded", "TOO_MANY_WATCHERS", message, { retryAfterMs: 1_000 });
}
