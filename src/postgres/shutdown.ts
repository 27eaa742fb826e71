import type { EmbeddedLimits } from "./limits.ts";

/** A running postmaster, whether it is our child or was left by a process before us. */
export interface Postmaster {
  readonly pid: number;
  signal(name: NodeJS.Signals): void;
  /** True as soon as it is gone, false after `ms`. */
  goneWithin(ms: number): Promise<boolean>;
}

/**
 * Stops a server the gentle way first; the answer is the signal that did it. SIGINT is PostgreSQL's
 * fast stop (sessions end, a checkpoint is written), SIGQUIT its immediate one (the next start replays
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
