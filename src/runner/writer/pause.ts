import { setTimeout as timeout } from "node:timers/promises";

/** Resolves after a while, and at once when the signal aborts. */
export async function delay(
  ms: number,
  signal: AbortSignal,
  { keepsAlive = true }: { readonly keepsAlive?: boolean } = {},
): Promise<void> {
  try {
    await timeout(ms, undefined, { signal, ref: keepsAlive });
  } catch {
    // Aborted.
  }
}
