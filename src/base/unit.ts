import { ServiceError } from "./errors.ts";

/**
 * Everything that lives longer than a call is a unit. `start` resolves when the unit is of use,
 * `stop` when nothing of it still runs; `stop` is idempotent, and works before `start` and after a
 * `start` that failed. test/support/unit-contract.ts runs that contract on every unit.
 */
export interface Unit {
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** More than the limits inside of any start add up to: a start that takes longer hangs. */
const START_STEP_MS_MAX = 600_000;

export interface StartOptions {
  /** Ends the start in the middle: it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  readonly stepMsMax?: number;
}

/**
 * Starts in order. When one fails, or takes too long, or the signal comes, it stops that one and those
 * before it, last first, and rejects with the error.
 */
export async function startAll(
  units: readonly Unit[],
  { signal, stepMsMax = START_STEP_MS_MAX }: StartOptions = {},
): Promise<void> {
  for (const [index, unit] of units.entries()) {
    try {
      await withinLimit(unit, { signal, stepMsMax });
    } catch (error) {
      await stopAll(units.slice(0, index + 1)).catch(() => undefined); // The first error is the cause.
      throw error;
    }
  }
}

async function withinLimit(
  unit: Unit,
  { signal, stepMsMax }: { readonly signal: AbortSignal | undefined; readonly stepMsMax: number },
): Promise<void> {
  signal?.throwIfAborted();
  const { promise: ended, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal?.reason);
  signal?.addEventListener("abort", abort, { once: true });
  const message = `a step of the start is not done after ${stepMsMax / 1_000} s`;
  const late = new ServiceError("unavailable", "DEADLINE_EXCEEDED", message);
  const timer = setTimeout(() => reject(late), stepMsMax);
  try {
    await Promise.race([unit.start(), ended]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/**
 * Units that stop at the same time, so that what waits for its callers does not wait for theirs too.
 * They start in order.
 */
export function together(units: readonly Unit[]): Unit {
  return {
    start: () => startAll(units),
    async stop() {
      const stopped = await Promise.allSettled(units.map((unit) => unit.stop()));
      const failed = stopped.find((one) => one.status === "rejected");
      if (failed !== undefined) throw failed.reason;
    },
  };
}

/** Stops in reverse order, all of them, even when one fails; rejects with the first failure. */
export async function stopAll(units: readonly Unit[]): Promise<void> {
  const failures: unknown[] = [];
  for (const unit of units.toReversed()) {
    try {
      await unit.stop();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}
