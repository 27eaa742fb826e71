/** Delays, injected, so that a test controls them. */
export interface Timers {
  /** Runs `action` once, `delayMs` from now; the returned function cancels it. */
  after(delayMs: number, action: () => void): () => void;
}

export const systemTimers: Timers = {
  after: (delayMs, action) => {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};
