/** Time, injected, so that a test controls it. */
export interface Clock {
  /** Wall clock, microseconds since 1970-01-01T00:00:00Z. Steps when the machine's clock is set. */
  nowMicros(): bigint;
  /** Milliseconds on a clock that never steps back; for durations and delays only. */
  monotonicMs(): number;
}

/** Cut to milliseconds. */
export function msOf(micros: bigint): number {
  return Number(micros / 1_000n);
}

export const systemClock: Clock = {
  // performance.timeOrigin + now() would give more digits, but drifts from the wall clock over days.
  nowMicros: () => BigInt(Date.now()) * 1000n,
  monotonicMs: () => performance.now(),
};
