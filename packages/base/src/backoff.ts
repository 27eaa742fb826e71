/** The delay before a retry: doubled with each try up to a limit, with jitter. */
export interface Backoff {
  readonly minMs: number;
  readonly maxMs: number;
}

/** Between half of the step and the step. `attempt` counts from 0; `random` is in [0, 1). */
export function backoffMs(backoff: Backoff, attempt: number, random: number): number {
  const step = Math.min(backoff.maxMs, backoff.minMs * 2 ** Math.min(attempt, 30));
  return step / 2 + (random * step) / 2;
}
