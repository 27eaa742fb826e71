/**
 * Retention in the background of a service: one pass at the start, and one each interval after the
 * end of the last pass. Instances on one database need not know each other (pass.ts). A failed pass
 * is logged and repeated at the next interval.
 */
import { BoundedMap } from "../base/bounded-map.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Database } from "../store/database.ts";
import { retentionPass } from "./pass.ts";

/** About 10 MB of ids and times. */
const DUE_SESSIONS_MAX = 100_000;

export interface RetentionDependencies {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "rowsErased" | "retentionPassed" | "retentionFailures">;
  /** Called for each session that lost rows at its beginning. */
  readonly erased: (sessionId: string) => void;
}

export interface RetentionTimes {
  readonly afterMs: number;
  readonly intervalMs: number;
}

export function createRetention(dependencies: RetentionDependencies, times: RetentionTimes): Unit {
  return new Retention(dependencies, times);
}

class Retention implements Unit {
  readonly #dependencies: RetentionDependencies;
  readonly #times: RetentionTimes;
  readonly #due = new BoundedMap<string, bigint>(DUE_SESSIONS_MAX);
  readonly #ending = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;

  constructor(dependencies: RetentionDependencies, times: RetentionTimes) {
    this.#dependencies = dependencies;
    this.#times = times;
  }

  async start(): Promise<void> {
    if (!this.#ending.signal.aborted) this.#run();
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    clearTimeout(this.#timer);
    await this.#running;
  }

  #run(): void {
    this.#running = this.#pass().finally(() => {
      this.#running = undefined;
      if (this.#ending.signal.aborted) return;
      this.#timer = setTimeout(() => this.#run(), this.#times.intervalMs);
    });
  }

  async #pass(): Promise<void> {
    const { database, log, metrics, erased } = this.#dependencies;
    const counted = (stream: string, rows: bigint): void =>
      metrics.rowsErased.inc({ stream, by: "retention" }, Number(rows));
    const { afterMs } = this.#times;
    const { signal } = this.#ending;
    const beganMs = performance.now();
    try {
      const summary = await retentionPass(
        { database, erased, counted, due: this.#due },
        { afterMs, sessionId: undefined, dryRun: false, signal },
      );
      if (signal.aborted || summary === undefined) return;
      metrics.retentionPassed.setToCurrentTime();
      const ms = Math.round(performance.now() - beganMs);
      const { messages, events, payloadBytes, ...sessions } = summary;
      const rows = {
        messages: Number(messages),
        events: Number(events),
        payloadBytes: Number(payloadBytes),
      };
      if (messages + events > 0n) log.info({ ...sessions, ...rows, ms }, "retention_pass");
    } catch (error) {
      if (signal.aborted) return;
      metrics.retentionFailures.inc();
      log.warn({ err: error }, "retention_failed");
    }
  }
}
