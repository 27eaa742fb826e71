/**
 * Limits the pushes per second of one caller, and of all callers together into one session. Caller
 * and session each have a bucket of bytes (described below). A push takes from both or from none. A
 * message takes MESSAGE_BYTES more than its payload, so small messages are limited too.
 *
 *   the first push ─► a bucket ─► full again, found when a new one is made ─► forgotten
 *                        └─ RATE_BUCKETS_MAX are not full ─► one shared bucket for all further keys
 *
 * A bucket that is not full is never dropped: a flood of session ids must not erase the record of
 * what a busy session, or the flood's own caller, has taken. Keys above the limit share one bucket.
 * So a flood slows only new keys, and all grants together stay below those of RATE_BUCKETS_MAX + 1
 * buckets.
 */
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { LimitMetrics, UsedLimit } from "../observability/limit-metrics.ts";

/**
 * The share of a message that no payload shows: a call, a row, a line of a batch. By it the defaults
 * allow 43,690 messages a second of one caller, and 21,845 into one session.
 */
export const MESSAGE_BYTES = 3_072;
/** Callers, and sessions, whose use of the last second is remembered. */
const RATE_BUCKETS_MAX = 65_536;
/** Buckets examined when one is made; more than one, so that the number of full buckets falls. */
const LOOKED_AT = 4;

/** The fields of a principal that its bucket depends on. */
interface Payer {
  readonly kind: string;
  readonly id: string;
}

export interface RateLimits {
  /** Takes one message of that many bytes for both; throws RATE_LIMITED and then takes nothing. */
  take(payer: Payer, sessionId: string, bytes: number): void;
  /** Takes the message always; answers for how many milliseconds the caller must not be read. */
  charge(payer: Payer, sessionId: string, bytes: number): number;
}

/** 0 means no limit. */
export interface RateOptions {
  readonly principalBytesPerSecondMax: number;
  readonly sessionBytesPerSecondMax: number;
}

interface RateParts {
  readonly clock: Clock;
  readonly metrics: Pick<LimitMetrics, "limitUse" | "rateBuckets">;
  readonly bucketsMax?: number;
}

export function createRateLimits(parts: RateParts, options: RateOptions): RateLimits {
  const principals = new Scope(parts, "principal", options.principalBytesPerSecondMax);
  const sessions = new Scope(parts, "session", options.sessionBytesPerSecondMax);
  return {
    take(payer, sessionId, bytes) {
      const nowMs = parts.clock.monotonicMs();
      const principal = keyOf(payer);
      const ofCaller = principals.refusal(principal, bytes, nowMs);
      const ofSession = sessions.refusal(sessionId, bytes, nowMs);
      const refused = ofCaller && ofSession ? longer(ofCaller, ofSession) : (ofCaller ?? ofSession);
      if (refused !== undefined) throw rateLimited(refused);
      principals.take(principal, bytes, nowMs);
      sessions.take(sessionId, bytes, nowMs);
    },
    charge(payer, sessionId, bytes) {
      const nowMs = parts.clock.monotonicMs();
      return Math.max(
        principals.charge(keyOf(payer), bytes, nowMs),
        sessions.charge(sessionId, bytes, nowMs),
      );
    },
  };
}

function keyOf({ kind, id }: Payer): string {
  return `${kind} ${id}`;
}

type Whose = "principal" | "session";

interface RateRefusal {
  readonly of: Whose;
  readonly bytesPerSecond: number;
  readonly waitMs: number;
}

/** The buckets of all callers, or of all sessions. */
class Scope {
  readonly #parts: RateParts;
  readonly #of: Whose;
  /** The label of the metric, made once, because every push records it. */
  readonly #limit: UsedLimit;
  /** 0 means no limit. */
  readonly #bytesPerSecond: number;
  /** For each key the time when its bucket is full again. */
  readonly #fullAtMs = new Map<string, number>();
  /** The bucket of all keys without room. */
  #sharedFullAtMs = 0;

  constructor(parts: RateParts, of: Whose, bytesPerSecond: number) {
    this.#parts = parts;
    this.#of = of;
    this.#limit = `${of}_bytes_per_second`;
    this.#bytesPerSecond = bytesPerSecond;
  }

  /** The reason why the push may not be taken now. A refused push creates no bucket. */
  refusal(key: string, bytes: number, nowMs: number): RateRefusal | undefined {
    if (this.#bytesPerSecond === 0) return undefined;
    const ownFullAtMs = this.#fullAtMs.get(key);
    // A new key with room counts as a full bucket, which grants any push once.
    if (ownFullAtMs === undefined && this.#hasRoom(nowMs)) return undefined;
    const waitMs = pushWaitMs(ownFullAtMs ?? this.#sharedFullAtMs, this.#costMs(bytes), nowMs);
    if (waitMs === 0) return undefined;
    return { of: this.#of, bytesPerSecond: this.#bytesPerSecond, waitMs };
  }

  /** Returns the time when the bucket is full again. */
  take(key: string, bytes: number, nowMs: number): number {
    if (this.#bytesPerSecond === 0) return nowMs;
    let ownFullAtMs = this.#fullAtMs.get(key);
    if (ownFullAtMs === undefined) {
      this.#forgetFull(nowMs);
      if (this.#hasRoom(nowMs)) ownFullAtMs = nowMs;
    }
    const fullAtMs = fullAfter(ownFullAtMs ?? this.#sharedFullAtMs, this.#costMs(bytes), nowMs);
    if (ownFullAtMs === undefined) this.#sharedFullAtMs = fullAtMs;
    else this.#fullAtMs.set(key, fullAtMs);
    const { limitUse, rateBuckets } = this.#parts.metrics;
    rateBuckets.set({ of: this.#of }, this.#fullAtMs.size);
    limitUse.note(this.#limit, (fullAtMs - nowMs) / BURST_MS);
    return fullAtMs;
  }

  charge(key: string, bytes: number, nowMs: number): number {
    return streamWaitMs(this.take(key, bytes, nowMs), nowMs);
  }

  #costMs(bytes: number): number {
    return ((bytes + MESSAGE_BYTES) * BURST_MS) / this.#bytesPerSecond;
  }

  /** False: further keys share one bucket. */
  #hasRoom(nowMs: number): boolean {
    const { bucketsMax = RATE_BUCKETS_MAX } = this.#parts;
    if (this.#fullAtMs.size >= bucketsMax) this.#forgetFull(nowMs);
    return this.#fullAtMs.size < bucketsMax;
  }

  /** Examines the buckets that were not examined for the longest time. */
  #forgetFull(nowMs: number): void {
    let left = LOOKED_AT;
    for (const [key, fullAtMs] of this.#fullAtMs) {
      if (left === 0) break;
      left -= 1;
      this.#fullAtMs.delete(key);
      if (fullAtMs > nowMs) this.#fullAtMs.set(key, fullAtMs);
    }
  }
}

function longer(one: RateRefusal, other: RateRefusal): RateRefusal {
  return one.waitMs >= other.waitMs ? one : other;
}

const WHERE = { principal: "by this caller", session: "into this session" } as const;

/** The settings have the same names as the limits. */
function rateLimited({ of, bytesPerSecond, waitMs }: RateRefusal): ServiceError {
  const setting = `${of}_bytes_per_second`.toUpperCase();
  const message = `more is pushed ${WHERE[of]} than ${bytesPerSecond} bytes a second (${setting})`;
  return new ServiceError("overloaded", "RATE_LIMITED", message, {
    retryAfterMs: Math.ceil(waitMs),
  });
}

/**
 * A token bucket as one number and pure functions. The number is the time when the bucket is full
 * again. A bucket holds the inflow of BURST_MS. Amounts are given as the time they take to flow in
 * (`costMs`), so no timer has to fill the bucket.
 *
 *                    ◄──────── BURST_MS ────────►
 *   ── debt ────────┤ empty                 full ├── forgotten: a full one has no record
 *                   now + BURST_MS            now          ◄── fullAtMs
 *
 * Two ways to take from a bucket:
 *
 *   a push    takes only amounts that are in the bucket. Over any time, the grants are at most the
 *             inflow plus one bucket. A push larger than a bucket is granted when the bucket is
 *             full, and leaves a debt; otherwise that push could never be sent.
 *   a stream  takes every message, because the message has arrived. The stream then waits until
 *             half of the bucket is full again, and continues even if other callers took from it
 *             meanwhile. So streams leave the other half to pushes, which would otherwise find it
 *             always empty, and pushes cannot starve streams.
 */

/** The capacity of a bucket: the inflow of one second. */
export const BURST_MS = 1_000;
/** The part of a bucket that streams leave to pushes. */
const RESERVE_MS = BURST_MS / 2;
/** Sums of floating-point times round; a bucket this near to the amount has enough. */
const SLACK_MS = 1e-3;

/** The wait until a push is granted, if no other push takes anything meanwhile; 0: granted now. */
export function pushWaitMs(fullAtMs: number, costMs: number, nowMs: number): number {
  const missingMs = Math.max(0, fullAtMs - nowMs) + Math.min(costMs, BURST_MS) - BURST_MS;
  return missingMs <= SLACK_MS ? 0 : missingMs;
}

export function streamWaitMs(fullAtMs: number, nowMs: number): number {
  return Math.max(0, fullAtMs - nowMs - (BURST_MS - RESERVE_MS));
}

/** The time when the bucket is full again, after an amount was taken. */
export function fullAfter(fullAtMs: number, costMs: number, nowMs: number): number {
  return Math.max(fullAtMs, nowMs) + costMs;
}
