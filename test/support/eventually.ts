import { vi } from "vitest";

/** Longer than any fact takes on a busy machine; a failure takes that long to be reported. */
const LIMIT_MS = 30_000;

/** Resolves with the answer of `look` once it no longer throws. */
export function eventually<T>(look: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(look, { timeout: LIMIT_MS, interval: 20 });
}
