/**
 * The folds of requested sessions. Folds are kept, so a returning client costs only the rows since
 * the last fold and not all rows of the session.
 *
 *   ask ──► entry ── is there already ───────────────────────────────► snapshot
 *             │ lacks rows: one shared flight                          ▲
 *             ▼                                                          │
 *           page ──► slice ──► turn of the event loop ──► … ──► landed ──┘ kept, or too large
 *
 * A flight begins at the fold's number and continues up to the highest wanted number. A failed read
 * ends the flight and leaves the fold at its last row, which is correct: the next caller continues
 * from there. A fold that throws is in the middle of a row, and is dropped.
 *
 * The kept folds are bounded by their estimated memory, with the texts made from them: a payload of
 * 1 MB may take 22 MB when it is parsed. The fold that was requested the longest ago is dropped
 * first. A session that is larger than the bound is folded and not kept. Folds in flight are never
 * dropped. Long folds (more than a page is missing) and short folds have separate limits: a session
 * that needs one page never queues after one that needs all of them. Folds up to a past number have
 * a third limit, because other callers cannot use their result.
 *
 * One fold has a bound too. A fold above it is dropped, and the session is remembered as too large.
 *
 * A flight is aborted when its last caller has left.
 */
import { setImmediate as turnOfEventLoop } from "node:timers/promises";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import { Semaphore } from "../base/semaphore.ts";
import type { Unit } from "../base/unit.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { LoggedAfter, LoggedRow } from "../store/pages.ts";
import type { LedgerReader } from "../store/reader.ts";
import { historyLost, sessionDeleted, sessionNotFound } from "../store/failure.ts";
import { type EventRow, lastSeqOf } from "../store/rows.ts";
import { expand } from "../compressor/expand.ts";
import { violationsOf } from "../contract/checks.ts";
import type { CallContext } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";
import { Fold, type Snapshot } from "./fold.ts";
import { Flight, rowsAfter, type RowsLimits, TooLarge } from "./folding.ts";

export interface TranscriptLimits extends RowsLimits {
  /** The limit for the estimated memory of all kept folds. */
  readonly bytesMax: number;
  /** The limit for the estimated memory of one fold. */
  readonly foldBytesMax: number;
  /**
   * Sessions that are folded at once when more than a page is missing, and when at most a page is
   * missing.
   */
  readonly longFoldsMax: number;
  readonly shortFoldsMax: number;
  /** Sessions that wait for one of those folds. */
  readonly foldsWaitingMax: number;
  /** Folds up to a past number, at once and waiting. */
  readonly pastFoldsMax: number;
  readonly pastWaitingMax: number;
}

export const TRANSCRIPT_LIMITS: Omit<TranscriptLimits, "bytesMax"> = {
  // 64 Mi characters, each of which may take 6 in JSON: below the 512 Mi that a text can have.
  foldBytesMax: 134_217_728,
  // Each fold has at most one read: with the default pool of 10, the pushes keep half of it.
  longFoldsMax: 2,
  shortFoldsMax: 2,
  foldsWaitingMax: 1_024,
  pastFoldsMax: 1,
  pastWaitingMax: 16,
  pageRowsMax: 2_000,
  pageBytesMax: 2_097_152,
  sliceRowsMax: 250,
  sliceBytesMax: 262_144,
  restMs: 10,
};

type TranscriptMetrics = Pick<Metrics, "transcripts" | "transcriptRows" | "transcriptBytes">;

export interface TranscriptDependencies {
  readonly reader: Pick<LedgerReader, "heads" | "pageAfter"> & {
    /** Like pageAfter, with the fields that a fold needs. */
    loggedAfter(request: LoggedAfter): Promise<readonly LoggedRow[]>;
  };
  readonly metrics: TranscriptMetrics;
}

interface ReadRequest {
  /** Undefined: the newest transcript. */
  readonly upToSeq: bigint | undefined;
  /** Aborts when no caller waits for it any more. */
  readonly signal?: AbortSignal;
}

/** The calls that read transcripts. */
export interface TranscriptHandlers {
  readTranscript(
    request: Pick<ReadRequest, "upToSeq"> & { readonly sessionId: string },
    context: CallContext,
  ): Promise<Snapshot>;
}

interface PartOfRow {
  readonly fold: Fold;
  readonly row: EventRow;
  readonly signal: AbortSignal | undefined;
}

interface Entry {
  readonly sessionId: string;
  readonly fold: Fold;
  /** The highest number that a caller has requested. */
  wanted: bigint;
  flight: Flight | undefined;
  /** The counted bytes; the bytes of a flight are added after it has landed. */
  keptBytes: number;
  isDropped: boolean;
  /** The fold may hold rows that no longer exist: no caller gets it. */
  isForgotten: boolean;
}

export class Transcripts implements Unit {
  readonly #reader: TranscriptDependencies["reader"];
  readonly #metrics: TranscriptMetrics;
  readonly #limits: TranscriptLimits;
  /** The entry that was requested the longest ago comes first. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;
  readonly #long: Semaphore;
  readonly #short: Semaphore;
  readonly #pastTurns: Semaphore;
  readonly #tooLarge = new TooLarge();
  readonly #flights = new Set<Promise<void>>();
  #stopped = false;

  constructor({ reader, metrics }: TranscriptDependencies, limits: TranscriptLimits) {
    this.#reader = reader;
    this.#metrics = metrics;
    this.#limits = limits;
    const { longFoldsMax, shortFoldsMax, pastFoldsMax, pastWaitingMax } = limits;
    this.#long = turnsOf(longFoldsMax, limits.foldsWaitingMax);
    this.#short = turnsOf(shortFoldsMax, limits.foldsWaitingMax);
    this.#pastTurns = turnsOf(pastFoldsMax, pastWaitingMax);
  }

  async start(): Promise<void> {
    // Nothing runs before the first request.
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.allSettled(this.#flights);
  }

  counts(): { readonly sessions: number; readonly bytes: number; readonly folding: number } {
    return { sessions: this.#entries.size, bytes: this.#bytes, folding: this.#flights.size };
  }

  /** `seq` is committed; the snapshot is of that number or a later one. */
  async snapshot(sessionId: string, seq: bigint, signal?: AbortSignal): Promise<Snapshot> {
    this.#tooLarge.refuse(sessionId, seq);
    const entry = this.#entryOf(sessionId, seq);
    while (entry.fold.seq < seq && !entry.isForgotten) {
      if (this.#stopped) throw stopping();
      if (entry.wanted < seq) entry.wanted = seq;
      entry.flight ??= new Flight((abandoned) => this.#fly(entry, abandoned));
      await entry.flight.landed(signal);
    }
    if (entry.isDropped) throw sessionDeleted(sessionId);
    if (entry.isForgotten) {
      // The fold was forgotten: the head must be read again to know whether the number is still
      // committed.
      const head = (await this.#reader.heads([sessionId])).get(sessionId);
      if (head === undefined || head.eventSeq < seq) throw historyLost(sessionId);
      return this.snapshot(sessionId, seq, signal);
    }
    const snapshot = entry.fold.snapshot();
    this.#keep(entry);
    return snapshot;
  }

  /** For a session that must exist. */
  async read(sessionId: string, { upToSeq, signal }: ReadRequest): Promise<Snapshot> {
    const violations = violationsOf([checkSessionId(sessionId)]);
    if (violations.length > 0) throw invalidArgument(violations);
    const held = this.heldSeq(sessionId);
    const head = (await this.#reader.heads([sessionId])).get(sessionId);
    if (held > (head?.eventSeq ?? 0n)) this.forget(sessionId);
    if (head === undefined) throw sessionNotFound(sessionId);
    if (head.deleted) {
      this.drop(sessionId);
      throw sessionDeleted(sessionId);
    }
    if (upToSeq === undefined) {
      return this.snapshot(sessionId, head.eventSeq, signal);
    }
    if (upToSeq > head.eventSeq) throw beyondHead(head.eventSeq);
    return this.#past(sessionId, upToSeq, signal);
  }

  /** The session is deleted. */
  drop(sessionId: string): void {
    const entry = this.#entries.get(sessionId);
    if (entry !== undefined) entry.isDropped = true;
    this.forget(sessionId);
  }

  /** Rows were erased or lost: the next read folds the session again, without them. */
  forget(sessionId: string): void {
    this.#tooLarge.forget(sessionId);
    const entry = this.#entries.get(sessionId);
    if (entry === undefined) return;
    entry.isForgotten = true;
    this.#forget(entry);
  }

  /** Another database server answers, which may lack rows of the previous one. */
  forgetAll(): void {
    this.#tooLarge.forgetAll();
    for (const sessionId of this.#entries.keys()) this.forget(sessionId);
  }

  /** The number of the held fold. A later answer with a lower head means lost rows. */
  heldSeq(sessionId: string): bigint {
    return this.#entries.get(sessionId)?.fold.seq ?? 0n;
  }

  #entryOf(sessionId: string, seq: bigint): Entry {
    const known = this.#entries.get(sessionId);
    const cache = known === undefined ? "miss" : known.fold.seq < seq ? "advanced" : "hit";
    this.#metrics.transcripts.inc({ cache });
    const entry = known ?? {
      sessionId,
      fold: new Fold(sessionId),
      wanted: 0n,
      flight: undefined,
      keptBytes: 0,
      isDropped: false,
      isForgotten: false,
    };
    this.#entries.delete(sessionId);
    // A session without events has nothing worth keeping.
    if (seq > 0n) this.#entries.set(sessionId, entry);
    return entry;
  }

  async #fly(entry: Entry, abandoned: AbortSignal): Promise<void> {
    const { sessionId, fold, wanted } = entry;
    const isLong = wanted - fold.seq > BigInt(this.#limits.pageRowsMax);
    try {
      await this.#inTurn(isLong ? this.#long : this.#short, abandoned, () =>
        this.#advance(entry, abandoned),
      );
    } finally {
      entry.flight = undefined;
      this.#keep(entry);
    }
    if (entry.isDropped) throw sessionDeleted(sessionId);
  }

  async #advance(entry: Entry, abandoned: AbortSignal): Promise<void> {
    const { sessionId, fold } = entry;
    const isOver = (): boolean => entry.isDropped || entry.isForgotten;
    const wanted = (): bigint => (isOver() ? 0n : entry.wanted);
    const request = { sessionId, after: fold.seq, wanted };
    const read = (page: LoggedAfter) => this.#reader.loggedAfter(page);
    for await (const { rows, seq } of rowsAfter(read, request, this.#limits)) {
      this.#mayGoOn(abandoned);
      if (isOver()) return;
      this.#metrics.transcriptRows.inc(rows.length);
      try {
        for (const row of rows) {
          fold.add(row);
          this.#refuseLarge(sessionId, fold);
        }
      } catch (error) {
        this.#forget(entry);
        throw error;
      }
      fold.skipTo(seq);
    }
  }

  /** Folds from the beginning: a fold cannot go back. */
  async #past(sessionId: string, upToSeq: bigint, signal?: AbortSignal): Promise<Snapshot> {
    this.#tooLarge.refuse(sessionId, upToSeq);
    this.#metrics.transcripts.inc({ cache: "miss" });
    const fold = new Fold(sessionId);
    const request = { sessionId, after: 0n, wanted: () => upToSeq };
    const read = (page: LoggedAfter) => this.#reader.pageAfter({ stream: "events", ...page });
    await this.#inTurn(this.#pastTurns, signal, async () => {
      for await (const { rows, seq } of rowsAfter(read, request, this.#limits)) {
        this.#mayGoOn(signal);
        this.#metrics.transcriptRows.inc(rows.length);
        for (const row of rows) {
          if (lastSeqOf(row) <= upToSeq) fold.add(row);
          else if (row.seq <= upToSeq) await this.#addUpTo(upToSeq, { fold, row, signal });
          this.#refuseLarge(sessionId, fold);
        }
        fold.skipTo(seq < upToSeq ? seq : upToSeq);
      }
    });
    return fold.snapshot();
  }

  /**
   * Adds the events of a merged row up to a number inside of it; a row may have very many events.
   */
  async #addUpTo(upToSeq: bigint, { fold, row, signal }: PartOfRow): Promise<void> {
    let count = 0;
    for (const raw of expand(row)) {
      if (raw.seq > upToSeq) return;
      fold.addEvent(raw, row.conformant);
      count += 1;
      if (count % this.#limits.sliceRowsMax !== 0) continue;
      await turnOfEventLoop();
      this.#mayGoOn(signal);
    }
  }

  #mayGoOn(signal: AbortSignal | undefined): void {
    if (this.#stopped) throw stopping();
    signal?.throwIfAborted();
  }

  #refuseLarge(sessionId: string, fold: Fold): void {
    if (fold.bytes > this.#limits.foldBytesMax) throw this.#tooLarge.note(sessionId, fold.seq);
  }

  async #inTurn(
    turns: Semaphore,
    signal: AbortSignal | undefined,
    fly: () => Promise<void>,
  ): Promise<void> {
    const flight = turns.run(async () => {
      this.#mayGoOn(signal);
      await fly();
    }, signal);
    this.#flights.add(flight);
    try {
      await flight;
    } finally {
      this.#flights.delete(flight);
    }
  }

  /** Keeps the fold if there is room for it. */
  #keep(entry: Entry): void {
    if (this.#entries.get(entry.sessionId) !== entry) return;
    this.#count(entry, SESSION_BYTES + entry.fold.bytesWithTexts);
    if (entry.keptBytes > this.#limits.bytesMax) this.#forget(entry);
    for (const oldest of this.#entries.values()) {
      if (this.#bytes <= this.#limits.bytesMax) return;
      if (oldest.flight === undefined) this.#forget(oldest);
    }
  }

  #forget(entry: Entry): void {
    if (this.#entries.get(entry.sessionId) !== entry) return;
    this.#entries.delete(entry.sessionId);
    this.#count(entry, 0);
  }

  #count(entry: Entry, bytes: number): void {
    this.#bytes += bytes - entry.keptBytes;
    entry.keptBytes = bytes;
    this.#metrics.transcriptBytes.set(this.#bytes);
  }
}

/** The memory of an almost empty fold; a rough number, so that small folds are not free. */
const SESSION_BYTES = 4_096;
const RETRY_AFTER_MS = 1_000;

function turnsOf(atOnce: number, waitingMax: number): Semaphore {
  const message = `${waitingMax} transcripts wait to be read, and no more may`;
  const full = (): ServiceError =>
    new ServiceError("overloaded", "RATE_LIMITED", message, { retryAfterMs: RETRY_AFTER_MS });
  return new Semaphore({ atOnce, waiting: { max: waitingMax, full } });
}

function beyondHead(head: bigint): ServiceError {
  const message = `up_to_seq is above the head of the session, which is ${head}`;
  return new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", message, {
    violations: [{ field: "up_to_seq", description: `up_to_seq must be at most ${head}` }],
  });
}

function stopping(): ServiceError {
  const message = "the service is stopping: ask again";
  return new ServiceError("unavailable", "SHUTTING_DOWN", message, { retryAfterMs: 1_000 });
}
