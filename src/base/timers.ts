/** Delays, injected, so that a test controls them. */
export interface Timers {
  /** Runs `action` once, `delayMs` from now; the returned function cancels it. */
  after(delayMs: number, action: () => void): () => void;
}

/**
 * A process that was busy runs its late timers before it reads its sockets. So the action runs after
 * that read: a limit does not count an answer as missing that has arrived (test/postgres/pools.test.ts).
 */
export const systemTimers: Timers = {
  after: (delayMs, action) => {
    let afterRead: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => (afterRead = setImmediate(action)), delayMs);
    return () => {
      clearTimeout(timer);
      clearImmediate(afterRead);
    };
  },
};

interface Limit<T> {
  readonly limitMs: number;
  /** Gives the result after the limit, or rejects. */
  readonly late: () => T | Promise<T>;
  /** An abort rejects with its reason at once. */
  readonly signal?: AbortSignal | undefined;
  readonly timers?: Timers;
}

/** Waits for the work, up to a limit. The work itself goes on after it; its result is dropped. */
export async function within<T>(work: PromiseLike<T>, limit: Limit<T>): Promise<T> {
  const { limitMs, late, signal, timers = systemTimers } = limit;
  const { promise: expired, resolve: expire, reject } = Promise.withResolvers<void>();
  const abort = (): void => reject(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort, { once: true });
  const cancel = timers.after(limitMs, expire);
  try {
    return await Promise.race([work, expired.then(late)]);
  } finally {
    cancel();
    signal?.removeEventListener("abort", abort);
  }
}

export function isDoneWithin(limitMs: number, work: Promise<unknown>): Promise<boolean> {
  return within(
    work.then(() => true),
    { limitMs, late: () => false },
  );
}
