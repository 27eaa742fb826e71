import type { EmbeddedLimits } from "./limits.ts";

/** A running postmaster: our child, or one that an earlier process left. */
export interface Postmaster {
  readonly pid: number;
  signal(name: NodeJS.Signals): void;
  /** True as soon as it is gone, false after `ms`. */
  goneWithin(ms: number): Promise<boolean>;
}

/**
 * Stops a server, gently at first; returns the signal that ended it. SIGINT is PostgreSQL's fast
 * stop (sessions end, a checkpoint is written), SIGQUIT its immediate one (the next start replays
 * the log); pg_ctl sends the same two.
 */
export async function shutDown(
  postmaster: Postmaster,
  limits: EmbeddedLimits,
): Promise<NodeJS.Signals> {
  const steps = [
    ["SIGINT", limits.fastStopMs],
    ["SIGQUIT", limits.immediateStopMs],
    ["SIGKILL", limits.killMs],
  ] as const;
  for (const [signal, ms] of steps) {
    postmaster.signal(signal);
    if (await postmaster.goneWithin(ms)) return signal;
  }
  throw new Error(`PostgreSQL process ${postmaster.pid} does not end, not even by SIGKILL`);
}
