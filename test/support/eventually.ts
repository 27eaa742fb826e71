import { vi } from "vitest";

/** Longer than a fact takes on a machine that is busy; what fails takes that long to say so. */
const LIMIT_MS = 30_000;

/** Resolves with what `look` answers once it no longer throws. */
export function eventually<T>(look: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(look, { timeout: LIMIT_MS, interval: 20 });
}
