/**
 * Stores the texts that search finds and the runs of analytics (docs/search.md). One instance does it at a
 * time: it holds a lease, and another one takes over half a minute after its last sign.
 *
 *   each second: sessions with new rows ──┐
 *   each ten minutes: sessions with rows  │
 *     of the last twenty minutes          │
 *   at first, and when asked: all ────────┴─ rows after the stored? ──► fold ──► texts
 *                                                                             │ at rest?
 *                             stored up to here, in the transaction of the texts ◄┘
 *
 * A pass reads the rows that were recorded since a time at which all older ones were visible
 * (live/horizon.ts), so it costs the same with any number of sessions, and the forks that were made
 * since. Restored and imported rows have older times; the commands that store them ask for the pass over
 * all sessions. After a pass its time is stored: everything that was recorded before it is found.
 *
 * The fold of a session with an open run stays in memory, so its rows are read once; stored rows
 * moves when the fold is at rest. After a crash, or on another instance, a fold begins again from what
 * is stored, and finds the same texts, which are stored once. A fold without rows for a minute, or too
 * large, is closed: its open messages are stored as they are, and its open run is read when rows come.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Clock } from "@session-ledger/base/clock";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { ServiceError } from "@session-ledger/base/errors";
import { Interval } from "../base/interval.ts";
import type { Unit } from "../base/unit.ts";
import type { ListCursor } from "../store/session-list.ts";
import type { RowsLimits } from "../conversation/folding.ts";
import { readOpenRun } from "../analytics/stored.ts";
import { type FoldReader, rowsFor } from "../conversation/fold-at.ts";
import { horizonAfter, type HorizonState, NO_HORIZON } from "../live/horizon.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Database } from "../store/database.ts";
import { createFeedReader, type Look } from "../store/feed.ts";
import {
  type StalePage,
  type StaleSession,
  staleActive,
  staleAfter,
  staleAmong,
  staleSince,
  checkLanguage,
  endLease,
  forgetTextless,
  holdLease,
  NEW,
  type Stored,
  storeFound,
  storeProgress,
} from "./index-store.ts";
import { Pace } from "./pace.ts";
import { TextFold } from "./text-fold.ts";

interface IndexParts {
  readonly database: Database;
  readonly reader: FoldReader;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "textsIndexed" | "indexPassed" | "indexFailures">;
  /** Knows the pushes of this process; absent: none. */
  readonly pace?: Pace;
}

export interface IndexOptions {
  readonly holder: string;
  /** A configuration of PostgreSQL's text search; undefined: only runs are stored. */
  readonly language: string | undefined;
  /** Without it, the work has no pauses. */
  readonly isGentle: boolean;
}

const PASS_INTERVAL_MS = 1_000;
const SWEEP_INTERVAL_MS = 600_000;
const LEASE_ASKED_AFTER_MS = 10_000;
/** Rows that become visible later than this wait for the next sweep. */
const RECENT_MICROS = 60_000_000n;
/** Rows that become visible later than this before a sweep are not found by it. */
const SWEPT_MICROS = 1_200_000_000n;
/** Without new texts its time is stored in this interval. */
const PROGRESS_INTERVAL_MS = 5_000;
const IDLE_MS = 60_000;
const FOLD_BYTES_MAX = 16 * 1_048_576;
/** Of all folds between two passes; above it the oldest are closed. */
const FOLDS_BYTES_MAX = 64 * 1_048_576;
/** An almost empty fold; a rough number, so that small folds are not free. */
const FOLD_BYTES_MIN = 4_096;
/** Rows of one session, before the others get a turn. */
const VISIT_ROWS_MAX = 20_000;
const PAUSE_MAX_MS = 2_000;

const ROWS: RowsLimits = {
  pageRowsMax: 500,
  pageBytesMax: 524_288,
  sliceRowsMax: 250,
  sliceBytesMax: 262_144,
  restMs: 0,
};

interface CachedFold {
  readonly fold: TextFold;
  from: Stored;
  rowsAtMs: number;
}

export class TextIndex implements Unit {
  readonly #parts: IndexParts;
  readonly #options: IndexOptions;
  readonly #pace: Pace;
  readonly #repeating = new Interval(() => this.#repeat());
  readonly #ending = new AbortController();
  /** The oldest comes first. */
  readonly #folds = new Map<string, CachedFold>();
  /** The heads of sessions whose texts cannot be stored. */
  readonly #failed = new BoundedMap<string, string>(10_000);
  /** Sessions that the next pass visits, with new rows or without. */
  readonly #left = new Set<string>();
  #horizon = NO_HORIZON;
  /** Undefined: the next pass is over all sessions. */
  #sweptMs: number | undefined;
  /** Everything that was recorded before it is stored; undefined: not known. */
  #doneMicros: bigint | undefined;
  #progressMs = Number.NEGATIVE_INFINITY;
  /** The same by our clock. */
  #doneMs = 0;
  #askedMs = Number.NEGATIVE_INFINITY;
  #askedAgain: number | undefined;
  #holds = false;
  #isFailing = false;

  constructor(parts: IndexParts, options: IndexOptions) {
    this.#parts = parts;
    this.#options = options;
    this.#pace = parts.pace ?? new Pace(parts.clock);
    parts.database.onOtherServer(() => this.#forget());
  }

  /** True: a pass has left rows to the next one. */
  get hasMore(): boolean {
    return this.#left.size > 0;
  }

  async start(): Promise<void> {
    const { language } = this.#options;
    if (language !== undefined) await checkLanguage(this.#parts.database, language);
    this.#repeating.start(PASS_INTERVAL_MS);
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#repeating.stop();
    if (!this.#holds) return;
    this.#holds = false;
    await endLease(this.#parts.database, this.#options.holder).catch(() => undefined);
  }

  async #repeat(): Promise<void> {
    const { log, metrics } = this.#parts;
    try {
      await this.pass();
      this.#isFailing = false;
    } catch (error) {
      this.#forget();
      if (this.#ending.signal.aborted) return;
      metrics.indexFailures.inc();
      if (!this.#isFailing) log.warn({ err: error }, "search_index_failed");
      this.#isFailing = true;
    }
  }

  #forget(): void {
    this.#folds.clear();
    this.#sweptMs = undefined;
    this.#doneMicros = undefined;
  }

  /** Stores the texts of the existing rows. False: another instance does. */
  async pass(): Promise<boolean> {
    if (!(await this.#canContinue())) return false;
    const look = await createFeedReader(this.#parts.database).look();
    const horizon = horizonAt(this.#horizon, look);
    const done = this.#doneMicros ?? look.atMicros;
    this.#doneMs = this.#parts.clock.monotonicMs() - Number(look.atMicros - done) / 1_000;
    let visited = 0;
    let beganMs = performance.now();
    for await (const page of this.#pages(look)) {
      visited += page.length;
      await this.#rest(performance.now() - beganMs);
      for (const session of page) if (!(await this.#visit(session))) return false;
      if (!(await this.#canContinue())) return false;
      beganMs = performance.now();
    }
    this.#horizon = horizon;
    await this.#closeSome();
    if (!this.hasMore) await this.#passed(horizon, visited > 0);
    this.#parts.metrics.indexPassed.setToCurrentTime();
    return true;
  }

  async #passed({ micros }: HorizonState, hasVisited: boolean): Promise<void> {
    this.#doneMicros = micros;
    const nowMs = this.#parts.clock.monotonicMs();
    if (micros === undefined || (!hasVisited && nowMs - this.#progressMs < PROGRESS_INTERVAL_MS))
      return;
    this.#progressMs = nowMs;
    await storeProgress(this.#parts.database, { holder: this.#options.holder, micros });
  }

  async *#pages({ atMicros }: Look): AsyncGenerator<readonly StaleSession[], void, undefined> {
    const { database, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    const left = [...this.#left];
    this.#left.clear();
    const { micros } = this.#horizon;
    const sweptMs = this.#sweptMs;
    const isWhole = sweptMs === undefined || micros === undefined;
    const isDue = isWhole || nowMs - sweptMs >= SWEEP_INTERVAL_MS;
    if (isDue) this.#sweptMs = nowMs;
    if (isWhole) return yield* walk("", (after) => staleAfter(database, after));
    const since: ListCursor = { micros: atMicros - SWEPT_MICROS, id: "" };
    if (isDue) yield* walk(since, (after) => staleActive(database, after));
    if (left.length > 0) yield staleAmong(database, left);
    for (const of of NEW) {
      yield* walk(micros, async (after) => {
        const { stale, next } = await staleSince(database, { of, micros: after });
        // More rows of one time than a page has are an import.
        if (next === after) this.#sweptMs = undefined;
        return { stale, next: next === after ? undefined : next };
      });
    }
  }

  /** False: the unit stops, or another instance has the lease. */
  async #canContinue(): Promise<boolean> {
    if (this.#ending.signal.aborted) return false;
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#askedMs < LEASE_ASKED_AFTER_MS) return this.#holds;
    const askedAgain = await holdLease(this.#parts.database, this.#options.holder);
    this.#askedMs = nowMs;
    if (askedAgain !== this.#askedAgain) {
      this.#sweptMs = undefined;
      if (askedAgain !== undefined && this.#options.language !== undefined)
        await forgetTextless(this.#parts.database);
    }
    this.#askedAgain = askedAgain;
    this.#holds = askedAgain !== undefined;
    if (!this.#holds) this.#folds.clear();
    return this.#holds;
  }

  async #visit(session: StaleSession): Promise<boolean> {
    const { sessionId, head } = session;
    const { log, metrics } = this.#parts;
    const failedAt = `${head.messages} ${head.events}`;
    if (this.#failed.get(sessionId) === failedAt) return true;
    try {
      return await this.#index(session);
    } catch (error) {
      this.#folds.delete(sessionId);
      if (error instanceof ServiceError) throw error;
      // The others must not wait for a session that nobody can index.
      this.#failed.set(sessionId, failedAt);
      metrics.indexFailures.inc();
      log.warn({ err: error, sessionId }, "search_index_failed");
      return true;
    }
  }

  async #index({ sessionId, head, stored }: StaleSession): Promise<boolean> {
    const { reader, clock } = this.#parts;
    const cached = await this.#cachedFold(sessionId, stored);
    const { fold } = cached;
    // Message rows have no runs.
    if (this.#options.language === undefined) fold.skipTo({ ...head, events: 0n });
    if (fold.cut.events >= head.events && fold.cut.messages >= head.messages) return true;
    let taken = 0;
    let beganMs = performance.now();
    const rows = rowsFor(reader, { sessionId, fold, upTo: head }, ROWS);
    for await (const slice of rows) {
      for (const row of slice.rows) fold.take(row);
      fold.skipTo({ events: slice.events, messages: 0n });
      cached.rowsAtMs = clock.monotonicMs();
      taken += slice.rows.length;
      if (!(await this.#store(sessionId, cached, fold.bytes > FOLD_BYTES_MAX))) return true;
      await this.#rest(performance.now() - beganMs);
      beganMs = performance.now();
      if (!(await this.#canContinue())) return false;
      // Closed, or the others get a turn; the next pass continues.
      if (this.#folds.get(sessionId) !== cached || taken >= VISIT_ROWS_MAX) {
        this.#left.add(sessionId);
        return true;
      }
    }
    fold.skipTo(head);
    await this.#store(sessionId, cached, false);
    return true;
  }

  async #cachedFold(sessionId: string, stored: Stored): Promise<CachedFold> {
    const existing = this.#folds.get(sessionId);
    const isOfNow =
      existing?.from.events === stored.events &&
      existing.from.messages === stored.messages &&
      existing.from.isKnown === stored.isKnown;
    if (existing !== undefined && isOfNow) return existing;
    const { database, clock } = this.#parts;
    const open =
      stored.events > 0n ? await readOpenRun(database, sessionId, stored.events) : undefined;
    const hasTexts = this.#options.language !== undefined;
    const fold = new TextFold(sessionId, stored, { open, hasTexts });
    const cached = { fold, from: stored, rowsAtMs: clock.monotonicMs() };
    this.#folds.delete(sessionId);
    this.#folds.set(sessionId, cached);
    return cached;
  }

  /** False: the fold is not of the rows of now, and is dropped. */
  async #store(sessionId: string, cached: CachedFold, isClosing: boolean): Promise<boolean> {
    const { database, metrics } = this.#parts;
    const { fold, from } = cached;
    const found = fold.drain({ all: isClosing });
    const moves = isClosing || fold.isAtRest;
    const stored = moves ? { ...fold.cut, hasSpeech: fold.hasSpeech } : from;
    const upTo = { ...stored, isKnown: true };
    const isStill = upTo.events === from.events && upTo.messages === from.messages;
    if (Object.values(found).every(({ length }) => length === 0) && isStill) return true;
    const { language } = this.#options;
    const count = await storeFound(database, { ...found, sessionId, from, upTo, language });
    if (count !== undefined) metrics.textsIndexed.inc(count);
    cached.from = upTo;
    if (count === undefined) this.#left.add(sessionId);
    if (isClosing || count === undefined) this.#folds.delete(sessionId);
    return count !== undefined;
  }

  /** Folds that are at rest hold nothing that is not stored. */
  async #closeSome(): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs();
    let bytes = 0;
    for (const [sessionId, { fold }] of this.#folds) {
      if (fold.isAtRest) this.#folds.delete(sessionId);
      else bytes += FOLD_BYTES_MIN + fold.bytes;
    }
    for (const [sessionId, cached] of this.#folds) {
      if (nowMs - cached.rowsAtMs < IDLE_MS && bytes <= FOLDS_BYTES_MAX) continue;
      bytes -= FOLD_BYTES_MIN + cached.fold.bytes;
      await this.#store(sessionId, cached, true);
    }
  }

  async #rest(busyMs: number): Promise<void> {
    if (!this.#options.isGentle || this.#ending.signal.aborted) return;
    // The first pass has no end by which the index could be behind.
    const isFirst = this.#doneMicros === undefined;
    const lagMs = isFirst ? 0 : this.#parts.clock.monotonicMs() - this.#doneMs;
    const before = performance.eventLoopUtilization();
    await this.#pause(busyMs);
    const { utilization } = performance.eventLoopUtilization(before);
    await this.#pause(busyMs * this.#pace.pauses({ utilization, lagMs }));
  }

  async #pause(pauseMs: number): Promise<void> {
    const { signal } = this.#ending;
    await delay(Math.min(pauseMs, PAUSE_MAX_MS), undefined, { signal }).catch(() => undefined);
  }
}

/** All pages of sessions, from a cursor. */
async function* walk<Cursor>(
  from: Cursor,
  read: (after: Cursor) => Promise<StalePage<Cursor>>,
): AsyncGenerator<readonly StaleSession[], void, undefined> {
  for (let after: Cursor | undefined = from; after !== undefined; ) {
    const page: StalePage<Cursor> = await read(after);
    yield page.stale;
    after = page.next;
  }
}

function horizonAt(state: HorizonState, look: Look): HorizonState {
  const next = horizonAfter(state, look);
  const floor = look.atMicros - RECENT_MICROS;
  return next.micros === undefined || next.micros < floor ? { ...next, micros: floor } : next;
}
