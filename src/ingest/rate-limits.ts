/**
 * How much a caller, and everybody together into one session, may push a second. One bucket for each
 * (token-bucket.ts), of messages and of bytes; a push takes from all four or from none.
 *
 *   the first push ─► a bucket ─► full again, found by the next that is made ─► forgotten
 *                        └─ RATE_BUCKETS_MAX are not full ─► one that all further ones share
 *
 * A bucket is never dropped while it says something: a flood of session ids must not wash away what a
 * busy session, or the flood's own caller, has taken. What comes above the limit shares one bucket, so
 * a flood slows those that come new, and no more is granted than by all buckets and one.
 */
import type { Clock } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { LimitMetrics, UsedLimit } from "../observability/limit-metrics.ts";
import { BURST_MS, fullAfter, pushWaitMs, streamWaitMs } from "./token-bucket.ts";

/** Callers, and sessions, whose last second is remembered. */
const RATE_BUCKETS_MAX = 65_536;
/** Buckets that are looked at when one is made; more than one, so that full ones get fewer. */
const LOOKED_AT = 4;

/** What a principal is known by here. */
export interface Payer {
  readonly kind: string;
  readonly id: string;
}

export interface RateLimits {
  /** Takes one message of so many bytes for both; throws RATE_LIMITED, and then takes nothing. */
  take(payer: Payer, sessionId: string, bytes: number): void;
  /** Takes it whatever there is; answers how long the caller must not be read from, in ms. */
  charge(payer: Payer, sessionId: string, bytes: number): number;
}

/** 0: any. */
export interface RateOptions {
  readonly principalMessagesPerSecondMax: number;
  readonly principalBytesPerSecondMax: number;
  readonly sessionMessagesPerSecondMax: number;
  readonly sessionBytesPerSecondMax: number;
}

export interface RateParts {
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
  /** As the metric has them; made once, for they are noted with every push. */
  readonly #limits: { readonly messages: UsedLimit; readonly bytes: UsedLimit };
  /** 0: any. */
  readonly #perSecond: { readonly messages: number; readonly bytes: number };
  readonly #buckets = new Map<string, Bucket>();
  /** Of those that there is no room for. */
  readonly #shared: Bucket = { messagesFullAtMs: 0, bytesFullAtMs: 0 };
  /** What a message and a byte cost; 0 without a limit. */
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

  /** Why it may not be taken now. Nobody who is refused leaves a bucket behind. */
  refusal(key: string, bytes: number, nowMs: number): RateRefusal | undefined {
    const bucket = this.#buckets.get(key) ?? this.#whereNew(nowMs);
    if (bucket === undefined) return undefined; // As good as a full one, which gives everything once.
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

  /** The bucket that a new one will share; undefined: there is room for one of its own. */
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

  /** Looks at those that were not looked at for the longest time. */
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

/** The settings have the names of the limits. */
function rateLimited({ of, unit, perSecond, waitMs }: RateRefusal): ServiceError {
  const setting = `${of}_${unit}_per_second`.toUpperCase();
  const message = `more is pushed ${WHERE[of]} than ${perSecond} ${unit} a second (${setting})`;
  return new ServiceError("overloaded", "RATE_LIMITED", message, {
    retryAfterMs: Math.ceil(waitMs),
  });
}
