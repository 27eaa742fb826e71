/**
 * Claims that wait for a message. Each is a watch of its session's messages with one timer: a
 * commit here, a hint of another instance or the poll of heads wakes it. A stop ends all.
 */
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { Timers } from "@session-ledger/base/timers";
import type { Unit } from "../../base/unit.ts";
import { type CallContext, reserveFor } from "../../contract/context.ts";
import type { Live } from "../../live/live.ts";
import type { Metrics } from "../../observability/metrics.ts";
import { isArrival } from "../../store/rows.ts";

interface ArrivalWaitParts {
  readonly live: Pick<Live, "attach">;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly metrics: Pick<Metrics, "claimsWaiting">;
}

interface Wait {
  readonly sessionId: string;
  /** Messages up to this number are known. */
  readonly afterSeq: bigint;
  /** On the monotonic clock. */
  readonly untilMs: number;
  readonly context: CallContext;
}

export class ArrivalWaits implements Unit {
  readonly #parts: ArrivalWaitParts;
  readonly #open = new Map<AbortController, Promise<boolean>>();
  #isStopped = false;

  constructor(parts: ArrivalWaitParts) {
    this.#parts = parts;
  }

  async start(): Promise<void> {}

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const ending of this.#open.keys()) ending.abort(stopping());
    await Promise.allSettled(this.#open.values());
  }

  /** False: the time is over. Throws when the call ends, or the session, or the service. */
  async next(wait: Wait): Promise<boolean> {
    if (this.#isStopped) throw stopping();
    const { clock, timers, metrics } = this.#parts;
    const leftMs = wait.untilMs - clock.monotonicMs();
    if (leftMs <= 0) return false;
    const ending = new AbortController();
    const cancel = timers.after(leftMs, () => ending.abort());
    const arrived = this.#arrived(wait, AbortSignal.any([wait.context.signal, ending.signal]));
    this.#open.set(ending, arrived);
    metrics.claimsWaiting.set(this.#open.size);
    try {
      return await arrived;
    } finally {
      cancel();
      this.#open.delete(ending);
      metrics.claimsWaiting.set(this.#open.size);
    }
  }

  async #arrived({ sessionId, afterSeq, context }: Wait, signal: AbortSignal): Promise<boolean> {
    const request = { stream: "messages", sessionId, signal } as const;
    try {
      const watcher = await this.#parts.live.attach({ ...request, acquire: reserveFor(context) });
      for await (const delivery of watcher.follow({ after: afterSeq, until: undefined })) {
        if (delivery.kind === "rows" && delivery.rows.some(isArrival)) return true;
      }
      return false;
    } catch (error) {
      // The database went back: the state is read again.
      if (ServiceError.from(error).reason === "CURSOR_BEYOND_HEAD") return true;
      throw error;
    }
  }
}

function stopping(): ServiceError {
  return new ServiceError("unavailable", "SHUTTING_DOWN", "the service is stopping: claim again", {
    retryAfterMs: 500,
  });
}
