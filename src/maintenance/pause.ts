import { setTimeout as delay } from "node:timers/promises";

const PAUSE_MIN_MS = 2;
const PAUSE_MAX_MS = 1_000;

/**
 * Between two batches: whoever pushes has the database for as long as the batch had it, or longer.
 * Ends at once, and quietly, when the signal aborts.
 */
export async function pauseAfter(busyMs: number, signal: AbortSignal): Promise<void> {
  const pauseMs = Math.min(Math.max(busyMs, PAUSE_MIN_MS), PAUSE_MAX_MS);
  await delay(pauseMs, undefined, { signal }).catch(() => undefined);
}
