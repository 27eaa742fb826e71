/**
 * One pass of retention: what it deletes is in docs/retention.md.
 *
 *   sessions by id ──► first row old? ──► look for ended runs ──► messages ──► events ──► look on
 *                        │ no, or of the open run                   a batch per transaction, a pause
 *                        ▼
 *                      next session
 *
 * A pass stores no progress. The messages are deleted before the events, and the events in their
 * order, so the event row that permits a deletion is deleted last. A pass after a crash, or a
 * parallel pass, finds the remaining rows; instances on one database need not know each other.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { Interval } from "../base/interval.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { microsColumn } from "../store/columns.ts";
import { bigintOf, type Database, sql } from "../store/database.ts";
import type { StreamName } from "../store/rows.ts";
import { type Beginning, BUSY_PAUSE_MS, countRows, eraseBatch, pauseAfter } from "./erase.ts";
import { type Border, candidateOf, lookForEndedRuns, sessionsAfter } from "./ended-runs.ts";

interface RetentionDependencies {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "rowsErased" | "retentionPassed" | "retentionFailures">;
  /** Called for each session that lost rows at its beginning. */
  readonly erased: (sessionId: string) => void;
}

interface RetentionTimes {
  readonly afterMs: number;
  readonly intervalMs: number;
}

export class Retention implements Unit {
  readonly #dependencies: RetentionDependencies;
  readonly #times: RetentionTimes;
  readonly #due = new BoundedMap<string, bigint>(100_000); // About 10 MB of ids and times.
  readonly #ending = new AbortController();
  readonly #passes = new Interval(() => this.#pass());

  constructor(dependencies: RetentionDependencies, times: RetentionTimes) {
    this.#dependencies = dependencies;
    this.#times = times;
  }

  async start(): Promise<void> {
    this.#passes.start(this.#times.intervalMs, 0);
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#passes.stop();
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

/** Sessions that one statement reads. */
const SESSIONS_MAX = 200;
/** The tries on a locked session; after them the session is left to the next pass. */
const BUSY_TRIES_MAX = 20;

export interface RetentionOptions {
  readonly afterMs: number;
  /** One session; undefined: all sessions. */
  readonly sessionId: string | undefined;
  /** Reports the rows that would be deleted, and deletes nothing. */
  readonly dryRun: boolean;
  /** Ends the pass after the current batch. */
  readonly signal: AbortSignal;
}

interface RetentionParts {
  readonly database: Database;
  /** Called for each session that lost rows. */
  readonly erased?: (sessionId: string) => void;
  /** Called for each batch. */
  readonly counted?: (stream: StreamName, rows: bigint) => void;
  /** The time before which a look at a session finds nothing, so that the session is skipped. */
  readonly due?: Map<string, bigint>;
  /** Rows that one statement reads. */
  readonly lookedAtRowsMax?: number;
}

export interface RetentionSummary {
  /** Sessions that the pass looked at. */
  readonly sessions: number;
  /** Sessions that lost rows, or would lose rows in a dry run. */
  readonly sessionsErased: number;
  /** Sessions that stayed locked and are left to the next pass. */
  readonly sessionsBusy: number;
  readonly messages: bigint;
  readonly events: bigint;
  readonly payloadBytes: bigint;
}

type Totals = { -readonly [K in keyof RetentionSummary]: RetentionSummary[K] };

/** Undefined: the named session does not exist. */
export async function retentionPass(
  parts: RetentionParts,
  options: RetentionOptions,
): Promise<RetentionSummary | undefined> {
  const pass = new Pass(parts, options, await nowMicros(parts.database));
  const { sessionId } = options;
  if (sessionId === undefined) await pass.all();
  else if (!(await pass.one(sessionId))) return undefined;
  return pass.totals;
}

/** The clock of the database, which also sets the times of the rows. */
async function nowMicros(database: Database): Promise<bigint> {
  const [row] = await database.run(sql`select ${microsColumn(sql`clock_timestamp()`)} as now`);
  return bigintOf(row?.["now"]);
}

class Pass {
  readonly totals: Totals = {
    sessions: 0,
    sessionsErased: 0,
    sessionsBusy: 0,
    messages: 0n,
    events: 0n,
    payloadBytes: 0n,
  };
  readonly #parts: RetentionParts;
  readonly #options: RetentionOptions;
  readonly #nowMicros: bigint;
  readonly #afterMicros: bigint;
  readonly #lookedAtRowsMax: number;

  constructor(parts: RetentionParts, options: RetentionOptions, now: bigint) {
    this.#parts = parts;
    this.#options = options;
    this.#nowMicros = now;
    this.#lookedAtRowsMax = parts.lookedAtRowsMax ?? 20_000;
    this.#afterMicros = BigInt(options.afterMs) * 1_000n;
  }

  async all(): Promise<void> {
    let after = "";
    while (!this.#options.signal.aborted) {
      const beganMs = performance.now();
      const page = await sessionsAfter(this.#parts.database, { after, sessionsMax: SESSIONS_MAX });
      const readMs = performance.now() - beganMs;
      for (const sessionId of page) await this.one(sessionId);
      const last = page.at(-1);
      if (last === undefined || page.length < SESSIONS_MAX) return;
      after = last;
      await pauseAfter(readMs, this.#options.signal);
    }
  }

  /** False: no such session. */
  async one(sessionId: string): Promise<boolean> {
    if (this.#options.signal.aborted) return true;
    const { database, due, erased } = this.#parts;
    this.totals.sessions += 1;
    if ((due?.get(sessionId) ?? 0n) > this.#nowMicros) return true;
    const candidate = await candidateOf(database, sessionId);
    if (candidate === undefined) return false;
    const { first } = candidate;
    if (first === undefined || first.isOpen) return true;
    if (first.recordedAtMicros >= this.#cutoffMicros) {
      due?.set(sessionId, first.recordedAtMicros + this.#afterMicros);
      return true;
    }
    const before = this.#rows;
    try {
      await this.#erase(sessionId, first.seq);
    } finally {
      if (this.#rows > before) {
        this.totals.sessionsErased += 1;
        if (!this.#options.dryRun) erased?.(sessionId);
      }
    }
    return true;
  }

  async #erase(sessionId: string, firstSeq: bigint): Promise<void> {
    let from: bigint | undefined = firstSeq;
    while (from !== undefined && !this.#options.signal.aborted) {
      const beganMs = performance.now();
      const cutoffMicros = this.#cutoffMicros;
      const look = { sessionId, from, cutoffMicros, rowsMax: this.#lookedAtRowsMax };
      const { border, youngMicros, next } = await lookForEndedRuns(this.#parts.database, look);
      await pauseAfter(performance.now() - beganMs, this.#options.signal);
      if (border !== undefined && !(await this.#eraseUpTo(sessionId, border))) return;
      if (next === undefined) {
        this.#parts.due?.set(sessionId, (youngMicros ?? this.#nowMicros) + this.#afterMicros);
      }
      from = next;
    }
  }

  /** False: some rows are left. */
  async #eraseUpTo(sessionId: string, border: Border): Promise<boolean> {
    const messages: Beginning = {
      sessionId,
      stream: "messages",
      upToSeq: undefined,
      recordedUpToMicros: border.recordedAtMicros,
      sparesTurns: true,
    };
    const events: Beginning = {
      sessionId,
      stream: "events",
      upToSeq: border.seq,
      recordedUpToMicros: undefined,
      sparesTurns: false,
    };
    return (await this.#eraseBeginning(messages)) && (await this.#eraseBeginning(events));
  }

  async #eraseBeginning(beginning: Beginning): Promise<boolean> {
    if (this.#options.dryRun) return this.#countBeginning(beginning);
    for (let tries = 0; !this.#options.signal.aborted; ) {
      const beganMs = performance.now();
      const erased = await eraseBatch(this.#parts.database, beginning);
      if (erased === "busy") {
        tries += 1;
        if (tries === BUSY_TRIES_MAX) {
          this.totals.sessionsBusy += 1;
          return false;
        }
        await pauseAfter(BUSY_PAUSE_MS, this.#options.signal);
        continue;
      }
      // Held since the pass has looked at it.
      if (erased.hold !== undefined) return false;
      if (erased.rows === 0n) return true;
      tries = 0;
      this.#parts.counted?.(beginning.stream, erased.rows);
      this.#add(beginning.stream, erased);
      await pauseAfter(performance.now() - beganMs, this.#options.signal);
    }
    return false;
  }

  /** Rows that the previous look has counted are not counted again. */
  readonly #counted = { sessionId: "", messages: 0n, events: 0n };

  async #countBeginning(beginning: Beginning): Promise<boolean> {
    const { sessionId, stream } = beginning;
    const counted = this.#counted;
    if (counted.sessionId !== sessionId)
      Object.assign(counted, { sessionId, messages: 0n, events: 0n });
    while (!this.#options.signal.aborted) {
      const look = { after: counted[stream], rowsMax: this.#lookedAtRowsMax };
      const rows = await countRows(this.#parts.database, beginning, look);
      if (rows.lastSeq === undefined) return true;
      counted[stream] = rows.lastSeq;
      this.#add(stream, rows);
    }
    return false;
  }

  #add(
    stream: StreamName,
    { rows, bytes }: { readonly rows: bigint; readonly bytes: bigint },
  ): void {
    this.totals[stream] += rows;
    this.totals.payloadBytes += bytes;
  }

  get #rows(): bigint {
    return this.totals.messages + this.totals.events;
  }

  get #cutoffMicros(): bigint {
    return this.#nowMicros - this.#afterMicros;
  }
}
