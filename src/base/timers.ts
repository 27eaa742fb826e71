/** Waiting, injected, so that a test decides when a wait is over. */
export interface Timers {
  /** Runs `action` once, `delayMs` from now; the answer cancels it. */
  after(delayMs: number, action: () => void): () => void;
}

export const systemTimers: Timers = {
  after: (delayMs, action) => {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};
