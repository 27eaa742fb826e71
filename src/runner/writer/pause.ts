import { setTimeout as timeout } from "node:timers/promises";

/** Resolves after `ms`, or at once when the signal aborts. */
export async function delay(
  ms: number,
  signal: AbortSignal,
  { keepsAlive = true }: { readonly keepsAlive?: boolean } = {},
): Promise<void> {
  try {
    await timeout(ms, undefined, { signal, ref: keepsAlive });
  } catch {
    // The signal was aborted.
  }
}
