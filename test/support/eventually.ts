/** How tests wait: for a fact, and never for a time. The fault harness uses this too, outside of Vitest. */
import { setTimeout as delay } from "node:timers/promises";

/**
 * The one limit of all waits. It is for hangs: a busy machine needs a part of it. Just below a minute, the
 * longest interval of a poll of the service: where a test chooses that interval, a fact that comes within the
 * limit did not come by the poll.
 */
export const CAP_MS = 55_000;

const LOOK_EVERY_MS = 20;

/** Resolves with the answer of `look` once it no longer throws. */
export async function eventually<T>(look: () => T | Promise<T>): Promise<T> {
  const untilMs = performance.now() + CAP_MS;
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (performance.now() > untilMs) throw error;
      await delay(LOOK_EVERY_MS);
    }
  }
}

/** The same promise, which rejects when it takes longer than the limit. */
export function capped<T>(fact: Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const late = new Error(`it did not happen within ${CAP_MS} ms`);
  const timer = setTimeout(() => reject(late), CAP_MS);
  return Promise.race([fact, promise]).finally(() => clearTimeout(timer));
}

/**
 * The speed of a client of a test: the time between two things that it does. No test waits for a fact by it.
 */
export function pace(delayMs: number, signal?: AbortSignal): Promise<void> {
  return delay(delayMs, undefined, { ...(signal && { signal }) });
}
