import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { type Clock, systemClock } from "@session-ledger/base/clock";
import { RpcFailure } from "./failure.ts";

const PAUSE: Backoff = { minMs: 100, maxMs: 5_000 };

export interface RetryOptions {
  /** The longest time of failures in a row; then the last one is thrown. 0 tries once. */
  readonly retryForMs: number;
  /** Ends a pause at once; the failure before it is then thrown. */
  readonly signal?: AbortSignal;
  /** False: this failure is thrown at once. Default: a failure that may pass is repeated. */
  readonly mayRepeat?: (failure: RpcFailure) => boolean;
  /** Called before each pause; `count` is 1 at the first failure in a row. */
  readonly onRetry?: (failure: RpcFailure, count: number) => void;
  readonly clock?: Clock;
  /** Rejects at once when the signal aborts. */
  readonly wait?: (pauseMs: number, signal: AbortSignal | undefined) => Promise<void>;
  /** From 0 up to but not including 1. */
  readonly random?: () => number;
}

/** From the first failure to a success. A pause is never shorter than the RetryInfo. */
export class Retries {
  readonly #options: RetryOptions;
  readonly #clock: Clock;
  #count = 0;
  #sinceMs: number | undefined;

  constructor(options: RetryOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  succeeded(): void {
    this.#count = 0;
    this.#sinceMs = undefined;
  }

  mayRepeat(failure: RpcFailure): boolean {
    return this.#options.mayRepeat?.(failure) ?? failure.mayPass;
  }

  /** Resolves when it is time to try again; rejects with the failure when no time is left. */
  async pauseAfter(failure: RpcFailure): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    this.#sinceMs ??= nowMs;
    const { retryForMs, signal, onRetry, wait = sleep, random = Math.random } = this.#options;
    const leftMs = this.#sinceMs + retryForMs - nowMs;
    const askedMs = failure.retryAfterMs ?? 0;
    // A longer pause ends with the remaining time, for one last attempt.
    if (leftMs <= 0 || askedMs > leftMs) throw failure;
    const pauseMs = Math.min(leftMs, Math.max(askedMs, backoffMs(PAUSE, this.#count, random())));
    this.#count += 1;
    onRetry?.(failure, this.#count);
    try {
      await wait(pauseMs, signal);
    } catch {
      throw failure; // Only the signal ends a pause early.
    }
  }
}

export async function retrying<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  const retries = new Retries(options);
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof RpcFailure && retries.mayRepeat(error))) throw error;
      await retries.pauseAfter(error);
    }
  }
}

function sleep(pauseMs: number, signal: AbortSignal | undefined): Promise<void> {
  return delay(pauseMs, undefined, signal === undefined ? {} : { signal });
}
