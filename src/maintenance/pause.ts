import { setTimeout as delay } from "node:timers/promises";

const PAUSE_MIN_MS = 2;
const PAUSE_MAX_MS = 1_000;

/**
 * Pauses between two batches for as long as the batch took (2 ms to 1 s), so that pushes get the
 * database for that time. Ends at once, and without an error, when the signal aborts.
 */
export async function pauseAfter(busyMs: number, signal: AbortSignal): Promise<void> {
  const pauseMs = Math.min(Math.max(busyMs, PAUSE_MIN_MS), PAUSE_MAX_MS);
  await delay(pauseMs, undefined, { signal }).catch(() => undefined);
}
