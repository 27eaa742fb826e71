/**
 * Whether the service can do its work. It probes the store every two seconds, so an answer to a
 * health check costs nothing, and a load balancer learns of a lost database without any push. The
 * probe is close to a push, but stores nothing. A push can fail where the probe succeeds, so failed
 * pushes count too.
 */
import type { Clock } from "@session-ledger/base/clock";
import { within } from "@session-ledger/base/timers";
import { Interval } from "../base/interval.ts";
import type { Log } from "./log.ts";

const INTERVAL_MS = 2_000;
/** A slower database is useless for a runner with a deadline of five seconds. */
const ANSWER_LIMIT_MS = 2_000;

/** Commits fail after this number of failures in a row, over this time, the last one recent. */
const FAILURES_MIN = 5;
const FAILING_MS_MIN = 3_000;
/** An instance that is out of service gets no pushes. After this time it is tried again. */
const FAILURE_TTL_MS = 30_000;

interface ReadinessParts {
  /** Rejects when the store could not take a push. */
  readonly probe: () => Promise<unknown>;
  readonly reasonOf: (error: unknown) => string;
  readonly commits: CommitFailures;
  readonly log: Pick<Log, "info" | "warn">;
  readonly changed: (isReady: boolean) => void;
}

export function createReadiness(parts: ReadinessParts) {
  const { probe, reasonOf, commits, log, changed } = parts;
  let isStopped = false;
  let wasReady = false;
  let why: string | undefined = "it was not asked yet";
  let isStarted = false;

  async function look(): Promise<void> {
    const answer = probe().then(() => undefined, reasonOf);
    const late = (): string => `no answer within ${ANSWER_LIMIT_MS} ms`;
    why = (await within(answer, { limitMs: ANSWER_LIMIT_MS, onTimeout: late })) ?? commits.why();
    const isReady = why === undefined;
    if (isReady === wasReady || isStopped) return;
    wasReady = isReady;
    if (isReady) log.info({}, "ready");
    else log.warn({ why }, "not ready");
    changed(isReady);
  }

  const looks = new Interval(look);
  return {
    /** Empty when ready, else the missing parts, with their reasons. */
    missing(): readonly string[] {
      if (isStopped) return ["stopping"];
      if (!isStarted) return ["starting"];
      return why === undefined ? [] : [`database: ${why}`];
    },
    async start(): Promise<void> {
      isStarted = true; // It is the last unit.
      await look();
      looks.start(INTERVAL_MS);
    },
    async stop(): Promise<void> {
      isStopped = true;
      await looks.stop();
    },
  };
}

/** Failed commits since the last successful one. */
export class CommitFailures {
  readonly #clock: Clock;
  count = 0;
  #firstMs = 0;
  #lastMs = 0;
  #why = "";

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  succeeded(): void {
    this.count = 0;
  }

  failed(why: string): void {
    this.#lastMs = this.#clock.monotonicMs();
    if (this.count === 0) this.#firstMs = this.#lastMs;
    this.count += 1;
    this.#why = why;
  }

  /** Undefined while pushes are stored, or too few were tried. */
  why(): string | undefined {
    const lasted = this.#lastMs - this.#firstMs;
    const isOld = this.#clock.monotonicMs() - this.#lastMs > FAILURE_TTL_MS;
    if (this.count < FAILURES_MIN || lasted < FAILING_MS_MIN || isOld) return undefined;
    return `pushes fail (${this.#why})`;
  }
}
