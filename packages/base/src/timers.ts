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

/** A timer that is this late belongs to a process that had no time to work. */
const LATE_MS = 100;
/** The time that the work gets then. */
const LATE_GRACE_MS = 1_000;

/**
 * For limits of work. A process that was busy runs its late timers before it reads, so a late limit
 * proves nothing about the other side: the work gets a moment more to read what has arrived.
 */
export const limitTimers: Timers = {
  after: (delayMs, action) => {
    const dueMs = performance.now() + delayMs;
    let afterRead: NodeJS.Immediate | undefined;
    let timer = setTimeout(() => {
      if (performance.now() - dueMs < LATE_MS) return action();
      timer = setTimeout(() => (afterRead = setImmediate(action)), LATE_GRACE_MS);
    }, delayMs);
    return () => {
      clearTimeout(timer);
      clearImmediate(afterRead);
    };
  },
};

interface WorkLimit<T> {
  readonly limitMs: number;
  /** Gives the result after the limit, or rejects. */
  readonly onTimeout: () => T | Promise<T>;
  /** An abort rejects with its reason at once. */
  readonly signal?: AbortSignal | undefined;
  readonly timers?: Timers;
}

/** Waits for the work, up to a limit. The work itself continues after it; its result is dropped. */
export async function within<T>(work: PromiseLike<T>, limit: WorkLimit<T>): Promise<T> {
  const { limitMs, onTimeout, signal, timers = limitTimers } = limit;
  let cancel: (() => void) | undefined;
  let abort: (() => void) | undefined;
  const isOver = new Promise<T>((resolve, reject) => {
    cancel = timers.after(limitMs, () => resolve(lateResult(onTimeout)));
    if (signal === undefined) return;
    abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([work, isOver]);
  } finally {
    cancel?.();
    if (abort !== undefined) signal?.removeEventListener("abort", abort);
  }
}

/** An error of `onTimeout` rejects. */
async function lateResult<T>(onTimeout: () => T | Promise<T>): Promise<T> {
  return onTimeout();
}

export function isDoneWithin(limitMs: number, work: Promise<unknown>): Promise<boolean> {
  return within(
    work.then(() => true),
    { limitMs, onTimeout: () => false },
  );
}
