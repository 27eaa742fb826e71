/**
 * Limits the pushes per second of one caller, and of all callers together into one session. Caller
 * and session each have a bucket of messages and a bucket of bytes (described below). A push takes
 * from all four or from none.
 *
 *   the first push ─► a bucket ─► full again, found when a new one is made ─► forgotten
 *                        └─ RATE_BUCKETS_MAX are not full ─► one shared bucket for all further keys
 *
 * A bucket that is not full is never dropped: a flood of session ids must not erase the record of
 * what a busy session, or the flood's own caller, has taken. Keys above the limit share one bucket.
 * So a flood slows only new keys, and all grants together stay below those of RATE_BUCKETS_MAX + 1
 * buckets.
 */
import type { Clock } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { LimitMetrics, UsedLimit } from "../observability/limit-metrics.ts";

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
  readonly principalMessagesPerSecondMax: number;
  readonly principalBytesPerSecondMax: number;
  readonly sessionMessagesPerSecondMax: number;
  readonly sessionBytesPerSecondMax: number;
}

interface RateParts {
  readonly clock: Clock;
  readonly metrics: Pick<LimitMetrics, "limitUse" | "rateBuckets">;
  readonly bucketsMax?: number;
}

export function createRateLimits(parts: RateParts, options: RateOptions): RateLimits {
  const principals = new Scope(parts, "principal", {
    messages: options.principalMessagesPerSecondMax,
    bytes: options.principalBytesPerSecondMax,
  });
  const sessions = new Scope(parts, "session", {
    messages: options.sessionMessagesPerSecondMax,
    bytes: options.sessionBytesPerSecondMax,
  });
  return {
    take(payer, sessionId, bytes) {
      const nowMs = parts.clock.monotonicMs();
      const principal = keyOf(payer);
      const refused = longer(
        principals.refusal(principal, bytes, nowMs),
        sessions.refusal(sessionId, bytes, nowMs),
      );
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

interface Bucket {
  messagesFullAtMs: number;
  bytesFullAtMs: number;
}

interface RateRefusal {
  readonly of: Whose;
  readonly unit: "messages" | "bytes";
  readonly perSecond: number;
  readonly waitMs: number;
}

/** The buckets of all callers, or of all sessions. */
class Scope {
  readonly #parts: RateParts;
  readonly #of: Whose;
  /** The labels of the metric, made once, because every push records them. */
  readonly #limits: { readonly messages: UsedLimit; readonly bytes: UsedLimit };
  /** 0 means no limit. */
  readonly #perSecond: { readonly messages: number; readonly bytes: number };
  readonly #buckets = new Map<string, Bucket>();
  /** The bucket of all keys for which there is no room. */
  readonly #shared: Bucket = { messagesFullAtMs: 0, bytesFullAtMs: 0 };
  /** The cost of a message and of a byte; 0 without a limit. */
  readonly #messageMs: number;
  readonly #byteMs: number;

  constructor(
    parts: RateParts,
    of: Whose,
    perSecond: { readonly messages: number; readonly bytes: number },
  ) {
    this.#parts = parts;
    this.#of = of;
    this.#limits = { messages: `${of}_messages_per_second`, bytes: `${of}_bytes_per_second` };
    this.#perSecond = perSecond;
    this.#messageMs = perSecond.messages === 0 ? 0 : BURST_MS / perSecond.messages;
    this.#byteMs = perSecond.bytes === 0 ? 0 : BURST_MS / perSecond.bytes;
  }

  /** The reason why the push may not be taken now. A refused push creates no bucket. */
  refusal(key: string, bytes: number, nowMs: number): RateRefusal | undefined {
    const bucket = this.#buckets.get(key) ?? this.#whereNew(nowMs);
    // A new key counts as a full bucket, which grants any push once.
    if (bucket === undefined) return undefined;
    const messagesMs = pushWaitMs(bucket.messagesFullAtMs, this.#messageMs, nowMs);
    const bytesMs = pushWaitMs(bucket.bytesFullAtMs, bytes * this.#byteMs, nowMs);
    if (messagesMs === 0 && bytesMs === 0) return undefined;
    const unit = messagesMs >= bytesMs ? "messages" : "bytes";
    const waitMs = Math.max(messagesMs, bytesMs);
    return { of: this.#of, unit, perSecond: this.#perSecond[unit], waitMs };
  }

  take(key: string, bytes: number, nowMs: number): Bucket | undefined {
    if (this.#messageMs === 0 && this.#byteMs === 0) return undefined;
    const bucket = this.#buckets.get(key) ?? this.#made(key, nowMs);
    bucket.messagesFullAtMs = fullAfter(bucket.messagesFullAtMs, this.#messageMs, nowMs);
    bucket.bytesFullAtMs = fullAfter(bucket.bytesFullAtMs, bytes * this.#byteMs, nowMs);
    const { limitUse } = this.#parts.metrics;
    limitUse.note(this.#limits.messages, (bucket.messagesFullAtMs - nowMs) / BURST_MS);
    limitUse.note(this.#limits.bytes, (bucket.bytesFullAtMs - nowMs) / BURST_MS);
    return bucket;
  }

  charge(key: string, bytes: number, nowMs: number): number {
    const bucket = this.take(key, bytes, nowMs);
    if (bucket === undefined) return 0;
    return Math.max(
      streamWaitMs(bucket.messagesFullAtMs, nowMs),
      streamWaitMs(bucket.bytesFullAtMs, nowMs),
    );
  }

  /**
   * The shared bucket when a new key has no room; undefined: there is room for a bucket of its own.
   */
  #whereNew(nowMs: number): Bucket | undefined {
    const { bucketsMax = RATE_BUCKETS_MAX } = this.#parts;
    if (this.#buckets.size < bucketsMax) return undefined;
    this.#forgetFull(nowMs);
    return this.#buckets.size < bucketsMax ? undefined : this.#shared;
  }

  #made(key: string, nowMs: number): Bucket {
    this.#forgetFull(nowMs);
    const shared = this.#whereNew(nowMs);
    if (shared !== undefined) return shared;
    const bucket = { messagesFullAtMs: nowMs, bytesFullAtMs: nowMs };
    this.#buckets.set(key, bucket);
    this.#parts.metrics.rateBuckets.set({ of: this.#of }, this.#buckets.size);
    return bucket;
  }

  /** Examines the buckets that were not examined for the longest time. */
  #forgetFull(nowMs: number): void {
    let left = LOOKED_AT;
    for (const [key, bucket] of this.#buckets) {
      if (left === 0) break;
      left -= 1;
      this.#buckets.delete(key);
      const isFull = bucket.messagesFullAtMs <= nowMs && bucket.bytesFullAtMs <= nowMs;
      if (!isFull) this.#buckets.set(key, bucket);
    }
  }
}

function longer(
  one: RateRefusal | undefined,
  other: RateRefusal | undefined,
): RateRefusal | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return one.waitMs >= other.waitMs ? one : other;
}

const WHERE = { principal: "by this caller", session: "into this session" } as const;

/** The settings have the same names as the limits. */
function rateLimited({ of, unit, perSecond, waitMs }: RateRefusal): ServiceError {
  const setting = `${of}_${unit}_per_second`.toUpperCase();
  const message = `more is pushed ${WHERE[of]} than ${perSecond} ${unit} a second (${setting})`;
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
 *             half of the bucket is there again, and continues even if other callers took from it
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

/** The wait of a stream before its next message. */
export function streamWaitMs(fullAtMs: number, nowMs: number): number {
  return Math.max(0, fullAtMs - nowMs - (BURST_MS - RESERVE_MS));
}

/** The time when the bucket is full again, after an amount was taken. */
export function fullAfter(fullAtMs: number, costMs: number, nowMs: number): number {
  return Math.max(fullAtMs, nowMs) + costMs;
}
