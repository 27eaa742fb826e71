/**
 * One pass of retention: what it deletes is in docs/retention.md.
 *
 *   sessions that may have old rows ──► small ones: several in a transaction ──────────► a pause
 *                 └─ large, or locked ──► first row old? ──► look for ended runs ──► messages ──► events ──► look on
 *                                                                   a batch per transaction, a pause
 *
 * A session has the time before which retention has looked at its rows, and an index of it: a pass finds
 * those that may have old rows. The messages are deleted before the events, and the events in their
 * order, so the event row that permits a deletion is deleted last. A pass after a crash, or a
 * parallel pass, finds the remaining rows; instances on one database need not know each other.
 */
import { Interval } from "../base/interval.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { microsColumn } from "../store/columns.ts";
import { bigintOf, type Database, sql } from "../store/database.ts";
import type { StreamName } from "../store/rows.ts";
import {
  batchesOf,
  type Beginning,
  BUSY_PAUSE_MS,
  countRows,
  eraseBatch,
  pauseAfter,
  retainSessions,
} from "./erase.ts";
import {
  type Border,
  candidateOf,
  lookForEndedRuns,
  setLooked,
  type UnlookedSession,
  unlookedSessions,
} from "./ended-runs.ts";

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
        { database, erased, counted },
        { afterMs, sessionId: undefined, dryRun: false, signal },
      );
      if (signal.aborted || summary === undefined) return;
      metrics.retentionPassed.setToCurrentTime();
      const ms = Math.round(performance.now() - beganMs);
      if (summary.messages + summary.events > 0) log.info({ ...summary, ms }, "retention_pass");
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
  /** Rows that one statement reads. */
  readonly lookedAtRowsMax?: number;
}

export type RetentionSummary = Readonly<Pass["totals"]>;

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
  readonly totals = {
    /** Sessions that the pass looked at. */
    sessions: 0,
    /** Sessions that lost rows, or would lose rows in a dry run. */
    sessionsErased: 0,
    /** Sessions that stayed locked and are left to the next pass. */
    sessionsBusy: 0,
    messages: 0,
    events: 0,
    payloadBytes: 0,
  };
  readonly #parts: RetentionParts;
  readonly #options: RetentionOptions;
  readonly #nowMicros: bigint;
  readonly #cutoffMicros: bigint;
  readonly #lookedAtRowsMax: number;

  constructor(parts: RetentionParts, options: RetentionOptions, now: bigint) {
    this.#parts = parts;
    this.#options = options;
    this.#nowMicros = now;
    this.#lookedAtRowsMax = parts.lookedAtRowsMax ?? 20_000;
    this.#cutoffMicros = now - BigInt(options.afterMs) * 1_000n;
  }

  async all(): Promise<void> {
    const { database } = this.#parts;
    let after: UnlookedSession | undefined;
    while (!this.#options.signal.aborted) {
      const beganMs = performance.now();
      const look = { after, cutoffMicros: this.#cutoffMicros, sessionsMax: SESSIONS_MAX };
      const page = await unlookedSessions(database, look);
      const readMs = performance.now() - beganMs;
      for (const batch of batchesOf(database, page)) await this.#retain(batch);
      after = page.at(-1);
      if (page.length < SESSIONS_MAX) return;
      await pauseAfter(readMs, this.#options.signal);
    }
  }

  async #retain(ids: readonly string[]): Promise<void> {
    if (this.#options.signal.aborted) return;
    const done = this.#options.dryRun ? new Set() : await this.#retainSmall(ids);
    for (const id of ids) if (!done.has(id)) await this.one(id);
  }

  /** The sessions that are done; the others are large, or locked. */
  async #retainSmall(ids: readonly string[]): Promise<ReadonlySet<unknown>> {
    const { database, counted, erased } = this.#parts;
    const beganMs = performance.now();
    const done = await retainSessions(database, {
      ids,
      cutoffMicros: this.#cutoffMicros,
      beganMicros: this.#nowMicros,
    });
    for (const { sessionId, messages, events, bytes } of done) {
      this.totals.sessions += 1;
      if (messages + events === 0n) continue;
      this.totals.sessionsErased += 1;
      this.#add("messages", { rows: messages, bytes });
      this.#add("events", { rows: events, bytes: 0n });
      counted?.("messages", messages);
      counted?.("events", events);
      erased?.(sessionId);
    }
    await pauseAfter(performance.now() - beganMs, this.#options.signal);
    return new Set(done.map(({ sessionId }) => sessionId));
  }

  /** False: no such session. */
  async one(sessionId: string): Promise<boolean> {
    if (this.#options.signal.aborted) return true;
    const { database, erased } = this.#parts;
    this.totals.sessions += 1;
    const candidate = await candidateOf(database, sessionId);
    if (candidate === undefined) return false;
    const { first } = candidate;
    if (first === undefined || first.isOpen) return true;
    if (first.recordedAtMicros >= this.#cutoffMicros) {
      if (!this.#options.dryRun) await setLooked(database, sessionId, first.recordedAtMicros);
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
      // A run ends, or is replaced, by a row that is stored later.
      if (next === undefined && !this.#options.dryRun)
        await setLooked(this.#parts.database, sessionId, youngMicros ?? this.#nowMicros);
      from = next;
    }
  }

  /** False: some rows are left. */
  async #eraseUpTo(sessionId: string, border: Border): Promise<boolean> {
    const turns = { recordedUpToMicros: border.recordedAtMicros, sparesTurns: true };
    return (
      (await this.#eraseBeginning({ sessionId, stream: "messages", ...turns })) &&
      (await this.#eraseBeginning({ sessionId, stream: "events", upToSeq: border.seq }))
    );
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
    this.totals[stream] += Number(rows);
    this.totals.payloadBytes += Number(bytes);
  }

  get #rows(): number {
    return this.totals.messages + this.totals.events;
  }
}
