/**
 * Everything that lives longer than a call is a unit. `start` resolves when the unit is of use,
 * `stop` when nothing of it still runs; `stop` is idempotent, and works before `start` and after a
 * `start` that failed. test/support/unit-contract.ts runs that contract on every unit.
 */
export interface Unit {
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts in order; when one fails, stops those before it, last first, and rejects with its error. */
export async function startAll(units: readonly Unit[]): Promise<void> {
  for (const [index, unit] of units.entries()) {
    try {
      await unit.start();
    } catch (error) {
      await stopAll(units.slice(0, index + 1)).catch(() => undefined); // The first error is the cause.
      throw error;
    }
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
