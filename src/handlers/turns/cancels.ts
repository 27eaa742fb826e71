/**
 * The cancels of open runs, on one replica: sends them to the push streams of their sessions, and
 * ends runs that are open after the time of grace. All state is in the table, for any replica.
 *
 *   a cancel here, a hint, an opened stream, a timer ──► look ──┬─► the push stream is here: sent once
 *                  ▲                                            └─► the time is over: the run is ended
 *                  └──── in a second, or when the next time is over ────┘
 *
 * A look reads a partial index that is nearly always empty. Nothing is done per push or per stream.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { ServiceError } from "@session-ledger/base/errors";
import { Throttle } from "../../base/throttle.ts";
import type { Timers } from "@session-ledger/base/timers";
import type { Unit } from "../../base/unit.ts";
import type { Log } from "../../observability/log.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { CancelStore, OpenCancel } from "../../store/cancels.ts";
import type { OpenGroups } from "../push-stream/open-groups.ts";
import { cancelTextOf } from "./cancel-run.ts";
import { type EndParts, endCancelled } from "./end-cancelled.ts";

/** Hints may ask more often. */
const LOOK_INTERVAL_MS = 50;
/** The longest time without a look, where the poll of heads is slower. */
const PAUSE_MS_MAX = 5_000;
const PAGE_ROWS = 500;
/** Runs that are ended at once: each takes a fold and two commits. */
const ENDS_MAX = 4;
/** A session that takes no row, because it is full, is not tried with each look. */
const FAILED_PAUSE_MS = 30_000;
const FAILED_MAX = 1_000;

interface CancelsParts extends EndParts {
  readonly cancels: CancelStore;
  readonly groups: Pick<OpenGroups, "close" | "has" | "sendCancel">;
  readonly timers: Timers;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "cancelledRunsEnded">;
}

interface CancelsOptions {
  readonly cancelGraceMs: number;
  /** The delay of a cancel on another instance whose hint is lost. */
  readonly headPollIntervalMs: number;
}

export class Cancels implements Unit {
  readonly #parts: CancelsParts;
  readonly #options: CancelsOptions;
  readonly #throttle: Throttle;
  /** By session. */
  readonly #ends = new Map<string, Promise<void>>();
  /** The times until which no other try is made. */
  readonly #failedUntilMs = new BoundedMap<string, number>(FAILED_MAX);
  #cancelTimer: (() => void) | undefined;
  #hasFailed = false;
  #isStopped = false;

  constructor(parts: CancelsParts, options: CancelsOptions) {
    this.#parts = parts;
    this.#options = options;
    const act = (): Promise<number> => this.#look();
    this.#throttle = new Throttle(parts.timers, { intervalMs: LOOK_INTERVAL_MS, act });
  }

  async start(): Promise<void> {
    this.look();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer?.();
    await this.#throttle.stop();
    await Promise.all(this.#ends.values());
  }

  /** A new cancel may exist. */
  look(): void {
    this.#throttle.request();
  }

  async #look(): Promise<number> {
    const { cancelGraceMs, headPollIntervalMs } = this.#options;
    let pauseMs = Math.min(headPollIntervalMs, PAUSE_MS_MAX);
    try {
      for await (const cancel of this.#open()) {
        this.#sendCancel(cancel);
        const leftMs = cancelGraceMs - (cancel.waitedMs ?? cancelGraceMs);
        if (leftMs <= 0) this.#end(cancel);
        else pauseMs = Math.min(pauseMs, Math.ceil(leftMs));
      }
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed) this.#parts.log.warn({ err: error }, "cancels cannot be read");
      this.#hasFailed = true;
    }
    this.#cancelTimer?.();
    if (!this.#isStopped) this.#cancelTimer = this.#parts.timers.after(pauseMs, () => this.look());
    return 0;
  }

  async *#open(): AsyncGenerator<OpenCancel, void, undefined> {
    for (let after = ""; !this.#isStopped; ) {
      const page = await this.#parts.cancels.openCancels({ after, rowsMax: PAGE_ROWS });
      yield* page;
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE_ROWS) return;
      after = last.sessionId;
    }
  }

  #sendCancel({ sessionId, runId, seq: messageSeq, payload = "" }: OpenCancel): void {
    const { groups } = this.#parts;
    if (!groups.has(sessionId)) return;
    const reason = cancelTextOf(payload)?.reason ?? "";
    groups.sendCancel(sessionId, { $typeName: "ambient.v1.Cancel", runId, reason, messageSeq });
  }

  #end(cancel: OpenCancel): void {
    const { sessionId } = cancel;
    if (this.#isStopped || this.#ends.has(sessionId) || this.#ends.size >= ENDS_MAX) return;
    const nowMs = this.#parts.clock.monotonicMs();
    if ((this.#failedUntilMs.get(sessionId) ?? nowMs) > nowMs) return;
    const ending = this.#endRun(cancel).finally(() => {
      const wasFull = this.#ends.size >= ENDS_MAX;
      this.#ends.delete(sessionId);
      if (wasFull) this.look();
    });
    this.#ends.set(sessionId, ending);
  }

  /** Never rejects: after a failure, a later look tries again. */
  async #endRun(cancel: OpenCancel): Promise<void> {
    const { log, metrics, clock } = this.#parts;
    const { sessionId, runId } = cancel;
    try {
      if (!(await endCancelled(this.#parts, cancel))) return;
      metrics.cancelledRunsEnded.inc();
      log.info({ sessionId, runId }, "cancelled run ended");
    } catch (error) {
      const isFull = ServiceError.from(error).reason === "SESSION_FULL";
      if (isFull) this.#failedUntilMs.set(sessionId, clock.monotonicMs() + FAILED_PAUSE_MS);
      log.warn({ sessionId, runId, err: error }, "cancelled run not ended");
    }
  }
}
