/**
 * Whether the service can do its work, which is whether the database answers. Asked every two seconds,
 * so that the answer to a probe costs nothing and a load balancer learns of a lost database by itself.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Unit } from "../base/lifecycle.ts";

const INTERVAL_MS = 2_000;
/** A database that takes longer is no use to a runner with a deadline of five seconds. */
const ANSWER_LIMIT_MS = 2_000;

export interface Readiness extends Unit {
  /** Empty when ready, else what is missing. */
  missing(): readonly string[];
}

export function createReadiness(
  ping: () => Promise<void>,
  changed: (isReady: boolean) => void,
): Readiness {
  const abort = new AbortController();
  let watching: Promise<void> | undefined;
  let isReady = false;

  async function look(): Promise<void> {
    const timeout = AbortSignal.timeout(ANSWER_LIMIT_MS);
    const late = new Promise<boolean>((resolve) => {
      timeout.addEventListener("abort", () => resolve(false), { once: true });
    });
    const answers = ping().then(
      () => true,
      () => false,
    );
    const now = await Promise.race([answers, late]);
    if (now !== isReady && !abort.signal.aborted) changed(now);
    isReady = now;
  }

  async function watch(): Promise<void> {
    while (!abort.signal.aborted) {
      await look();
      await delay(INTERVAL_MS, undefined, { signal: abort.signal }).catch(() => undefined);
    }
  }

  return {
    missing: () => (abort.signal.aborted ? ["stopping"] : isReady ? [] : ["database"]),
    async start() {
      await look();
      watching = watch();
    },
    async stop() {
      abort.abort();
      await watching;
    },
  };
}
