import { ServiceError } from "@session-ledger/base/errors";
import { within } from "@session-ledger/base/timers";

/**
 * An object that lives longer than a call. `start` resolves when it is usable, `stop` when nothing
 * of it runs; `stop` is idempotent, also before `start` (test/support/unit-contract.ts).
 */
export interface Unit {
  start(): Promise<void>;
  stop(): Promise<void>;
}

interface StartOptions {
  /** Ends the start early: it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Default ten minutes, more than all limits inside any start: a longer one hangs. */
  readonly stepMsMax?: number;
}

/** Starts in order; after a failure or an abort stops the started ones in reverse, and rejects. */
export async function startAll(
  units: readonly Unit[],
  { signal, stepMsMax = 600_000 }: StartOptions = {},
): Promise<void> {
  const message = `a step of the start is not done after ${stepMsMax / 1_000} s`;
  const late = new ServiceError("unavailable", "DEADLINE_EXCEEDED", message);
  for (const [index, unit] of units.entries()) {
    try {
      signal?.throwIfAborted();
      await within(unit.start(), {
        limitMs: stepMsMax,
        onTimeout: () => Promise.reject(late),
        signal,
      });
    } catch (error) {
      // The first error is the cause.
      await stopAll(units.slice(0, index + 1)).catch(() => undefined);
      throw error;
    }
  }
}

/** Units that start in order and stop together, so that none waits for another's callers. */
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

/** Stops all units in reverse order, even when one fails; rejects with the first failure. */
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
