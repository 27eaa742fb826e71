/**
 * A cache of the folds of requested sessions. A returning client costs only the rows since
 * the last fold and not all rows of the session.
 *
 *   request ──► entry ── has the cut ────────────────────────────────────► snapshot
 *                 │ lacks rows: one shared fold                              ▲
 *                 ▼                                                          │
 *               page ──► slice ──► turn of the event loop ──► … ──► done ────┘ cached, or too large
 *
 * A shared fold begins at the cut of the entry (merging.ts) and continues up to the latest wanted
 * one; it is aborted when its last caller has left. After a failed read the next caller continues
 * from the last row. A fold that throws is in the middle of a row, and is dropped.
 *
 * The cached folds are bounded by their estimated memory, with their texts: a payload of 1 MB may
 * take 22 MB when it is parsed. The fold that was requested the longest ago is dropped first, and
 * running folds never. One fold has a bound too; above it the session counts as too large. Long
 * folds (more than a page is missing) and short ones have separate limits, so one page never queues
 * after whole sessions. Folds up to a past number take turns with other long reads, by caller.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { ServiceError } from "@session-ledger/base/errors";
import { overloaded } from "../base/budget.ts";
import { Semaphore } from "../base/semaphore.ts";
import type { Unit } from "../base/unit.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { LedgerReader } from "../store/reader.ts";
import { historyLost, livingOf, sessionDeleted } from "../store/failure.ts";
import { checkSessionId, refuse } from "../contract/checks.ts";
import type { CallContext } from "../contract/context.ts";
import { Fold } from "./fold.ts";
import type { Snapshot } from "./snapshot.ts";
import { SharedFold, transcriptTooLarge } from "./folding.ts";
import { type Cut, cutOf, isEarlier, later, NOTHING } from "./merging.ts";
import { foldAt, type FoldReader, rowsFor } from "./fold-at.ts";

type FoldLimits = typeof TRANSCRIPT_LIMITS;

export interface TranscriptCacheLimits extends FoldLimits {
  /** The limit for the estimated memory of all cached folds. */
  readonly bytesMax: number;
}

export const TRANSCRIPT_LIMITS = {
  /**
   * The limit for the estimated memory of one fold: 64 Mi characters, each of which may take 6 in JSON,
   * below the 512 Mi that a text can have.
   */
  foldBytesMax: 134_217_728,
  /**
   * Sessions that are folded at once if more than a page is missing, and if less. Each fold has at most
   * one read: with the default pool of 10, the pushes keep half of it.
   */
  longFoldsMax: 2,
  shortFoldsMax: 2,
  /** Sessions that wait for one of those folds. */
  foldsWaitingMax: 1_024,
  pageRowsMax: 2_000,
  pageBytesMax: 2_097_152,
  sliceRowsMax: 250,
  sliceBytesMax: 262_144,
  restMs: 10,
};

/** Sessions whose transcript is too large; above this number, a forgotten one costs one fold again. */
const TOO_LARGE_MAX = 10_000;

type TranscriptMetrics = Pick<Metrics, "transcripts" | "transcriptRows" | "transcriptBytes">;

export interface TranscriptDependencies {
  readonly reader: Pick<LedgerReader, "heads"> & FoldReader;
  readonly metrics: TranscriptMetrics;
  /** Of folds up to a past number. */
  readonly pastTurns: Semaphore;
}

interface TranscriptRequest {
  /** Undefined: the newest transcript. */
  readonly upToSeq?: bigint | undefined;
  /** Aborts when no caller waits for it any more. */
  readonly signal?: AbortSignal | undefined;
  /** The caller, which shares its turns with others. */
  readonly caller?: string | undefined;
}

export interface TranscriptHandlers {
  readonly readTranscript: (
    request: Pick<TranscriptRequest, "upToSeq"> & { readonly sessionId: string },
    context: CallContext,
  ) => Promise<Snapshot>;
}

interface CachedTranscript {
  readonly sessionId: string;
  readonly fold: Fold;
  /** The latest cut that a caller has requested. */
  wanted: Cut;
  flight: SharedFold | undefined;
  /** The counted bytes; the bytes of a running fold are added at its end. */
  countedBytes: number;
  isDropped: boolean;
  /** The fold may hold rows that no longer exist: no caller gets it. */
  isForgotten: boolean;
}

export class Transcripts implements Unit {
  readonly #reader: TranscriptDependencies["reader"];
  readonly #metrics: TranscriptMetrics;
  readonly #limits: TranscriptCacheLimits;
  /** The entry that was requested the longest ago comes first. */
  readonly #entries = new Map<string, CachedTranscript>();
  #bytes = 0;
  readonly #long: Semaphore;
  readonly #short: Semaphore;
  readonly #pastTurns: Semaphore;
  /**
   * The sessions whose transcript is too large, and the number where it became so: a later number
   * is not worth another fold. If retention makes a session small, it is folded again when it has
   * been forgotten here, at the latest after a restart.
   */
  readonly #tooLargeFrom = new BoundedMap<string, bigint>(TOO_LARGE_MAX);
  readonly #flights = new Set<Promise<void>>();
  #stopped = false;

  constructor(
    { reader, metrics, pastTurns }: TranscriptDependencies,
    limits: TranscriptCacheLimits,
  ) {
    this.#reader = reader;
    this.#metrics = metrics;
    this.#limits = limits;
    this.#pastTurns = pastTurns;
    const { longFoldsMax, shortFoldsMax } = limits;
    this.#long = turnsOf(longFoldsMax, limits.foldsWaitingMax);
    this.#short = turnsOf(shortFoldsMax, limits.foldsWaitingMax);
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

  /** The session was at `cut`; the snapshot is of that cut or a later one. */
  async snapshot(sessionId: string, cut: Cut, signal?: AbortSignal): Promise<Snapshot> {
    const entry = await this.#folded(sessionId, cut, signal);
    const snapshot = entry.fold.snapshot();
    this.#keep(entry);
    return snapshot;
  }

  async #folded(
    sessionId: string,
    cut: Cut,
    signal: AbortSignal | undefined,
  ): Promise<CachedTranscript> {
    this.#refuseTooLarge(sessionId, cut.events);
    const entry = this.#entryOf(sessionId, cut);
    while (isEarlier(entry.fold.cut, cut) && !entry.isForgotten) {
      if (this.#stopped) throw stopping();
      entry.wanted = later(entry.wanted, cut);
      entry.flight ??= new SharedFold((abandoned) => this.#runFold(entry, abandoned));
      await entry.flight.join(signal);
    }
    if (entry.isDropped) throw sessionDeleted(sessionId);
    if (entry.isForgotten) {
      // The head must be read again: the numbers may not be committed any more.
      return this.#folded(sessionId, await this.#currentCut(sessionId, cut), signal);
    }
    return entry;
  }

  /** The session as it is now, which was at these numbers, or at one of them. */
  async current(sessionId: string, seen: Cut, signal?: AbortSignal): Promise<Snapshot> {
    return this.snapshot(sessionId, await this.#currentCut(sessionId, seen), signal);
  }

  async #currentCut(sessionId: string, seen: Cut): Promise<Cut> {
    const head = (await this.#reader.heads([sessionId])).get(sessionId);
    if (head === undefined || isEarlier(cutOf(head), seen)) throw historyLost(sessionId);
    return cutOf(head);
  }

  /** For a session that must exist. */
  async read(sessionId: string, request: TranscriptRequest): Promise<Snapshot> {
    refuse([checkSessionId(sessionId)]);
    const head = await this.#existing(sessionId);
    const { upToSeq } = request;
    if (upToSeq === undefined) return this.snapshot(sessionId, head, request.signal);
    if (upToSeq > head.events) throw beyondHead(head.events);
    return this.#foldAt(sessionId, { upToSeq, head }, request);
  }

  /** The id under which the conversation has the message; see `Fold.messageOf`. */
  async messageOf(
    sessionId: string,
    { messageId, signal }: { readonly messageId: string; readonly signal: AbortSignal },
  ): Promise<string | undefined> {
    const { fold } = await this.#folded(sessionId, await this.#existing(sessionId), signal);
    return fold.messageOf(messageId);
  }

  async #existing(sessionId: string): Promise<Cut> {
    const cachedCut = this.cachedCut(sessionId);
    const head = (await this.#reader.heads([sessionId])).get(sessionId);
    const cut = head === undefined ? NOTHING : cutOf(head);
    if (isEarlier(cut, cachedCut)) this.forget(sessionId);
    if (head?.deleted === true) this.drop(sessionId);
    livingOf(sessionId, head);
    return cut;
  }

  drop(sessionId: string): void {
    const entry = this.#entries.get(sessionId);
    if (entry !== undefined) entry.isDropped = true;
    this.forget(sessionId);
  }

  /** Rows were erased or lost: the next read folds the session again, without them. */
  forget(sessionId: string): void {
    this.#tooLargeFrom.delete(sessionId);
    const entry = this.#entries.get(sessionId);
    if (entry === undefined) return;
    entry.isForgotten = true;
    this.#forget(entry);
  }

  /** Another database server answers, which may lack rows of the previous one. */
  forgetAll(): void {
    this.#tooLargeFrom.clear();
    for (const sessionId of this.#entries.keys()) this.forget(sessionId);
  }

  /** The cut of the held fold. A later answer with a lower head means lost rows. */
  cachedCut(sessionId: string): Cut {
    return this.#entries.get(sessionId)?.fold.cut ?? NOTHING;
  }

  #entryOf(sessionId: string, cut: Cut): CachedTranscript {
    const existing = this.#entries.get(sessionId);
    const isCached = existing !== undefined;
    const cache = !isCached ? "miss" : isEarlier(existing.fold.cut, cut) ? "advanced" : "hit";
    this.#metrics.transcripts.inc({ cache });
    const entry = existing ?? {
      sessionId,
      fold: new Fold(sessionId),
      wanted: NOTHING,
      flight: undefined,
      countedBytes: 0,
      isDropped: false,
      isForgotten: false,
    };
    this.#entries.delete(sessionId);
    // A session without rows has nothing worth keeping.
    if (isEarlier(NOTHING, cut)) this.#entries.set(sessionId, entry);
    return entry;
  }

  async #runFold(entry: CachedTranscript, abandoned: AbortSignal): Promise<void> {
    const { sessionId, fold, wanted } = entry;
    const { events, messages } = fold.cut;
    const missing = wanted.events - events + (wanted.messages - messages);
    const isLong = missing > BigInt(this.#limits.pageRowsMax);
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

  async #advance(entry: CachedTranscript, abandoned: AbortSignal): Promise<void> {
    const { sessionId, fold } = entry;
    const isOver = (): boolean => entry.isDropped || entry.isForgotten;
    while (isEarlier(fold.cut, entry.wanted)) {
      const upTo = entry.wanted;
      const rowsOf = { sessionId, fold, upTo };
      for await (const { rows, events } of rowsFor(this.#reader, rowsOf, this.#limits)) {
        this.#throwIfStopped(abandoned);
        if (isOver()) return;
        this.#metrics.transcriptRows.inc(rows.length);
        try {
          for (const row of rows) {
            fold.take(row);
            this.#refuseLarge(sessionId, fold);
          }
        } catch (error) {
          this.#forget(entry);
          throw error;
        }
        fold.skipTo({ events, messages: 0n });
      }
      if (isOver()) return;
      fold.skipTo(upTo);
    }
  }

  /** Folds from the beginning: a fold cannot go back. */
  async #foldAt(
    sessionId: string,
    at: { readonly head: Cut; readonly upToSeq: bigint },
    { signal, caller }: TranscriptRequest,
  ): Promise<Snapshot> {
    this.#refuseTooLarge(sessionId, at.upToSeq);
    this.#metrics.transcripts.inc({ cache: "miss" });
    const fold = new Fold(sessionId);
    const onFolded = (rows: number): void => {
      this.#throwIfStopped(signal);
      this.#metrics.transcriptRows.inc(rows);
      this.#refuseLarge(sessionId, fold);
    };
    const parts = { reader: this.#reader, limits: this.#limits, onFolded };
    const past = { fold, sessionId, ...at };
    await this.#inTurn(this.#pastTurns, signal, () => foldAt(parts, past), caller);
    return fold.snapshot();
  }

  #throwIfStopped(signal: AbortSignal | undefined): void {
    if (this.#stopped) throw stopping();
    signal?.throwIfAborted();
  }

  #refuseLarge(sessionId: string, fold: Fold): void {
    if (fold.bytes <= this.#limits.foldBytesMax) return;
    this.#tooLargeFrom.set(sessionId, fold.cut.events);
    throw transcriptTooLarge(fold.cut.events);
  }

  /** Without a fold, if the transcript is known to be too large at that number. */
  #refuseTooLarge(sessionId: string, seq: bigint): void {
    const from = this.#tooLargeFrom.get(sessionId);
    if (from !== undefined && seq >= from) throw transcriptTooLarge(from);
  }

  async #inTurn(
    turns: Semaphore,
    signal: AbortSignal | undefined,
    work: () => Promise<void>,
    caller?: string,
  ): Promise<void> {
    const begin = async (): Promise<void> => {
      this.#throwIfStopped(signal);
      await work();
    };
    const flight = turns.run(begin, signal, caller);
    this.#flights.add(flight);
    try {
      await flight;
    } finally {
      this.#flights.delete(flight);
    }
  }

  /** Caches the fold if it fits. */
  #keep(entry: CachedTranscript): void {
    if (this.#entries.get(entry.sessionId) !== entry) return;
    this.#count(entry, SESSION_BYTES + entry.fold.bytesWithTexts);
    if (entry.countedBytes > this.#limits.bytesMax) this.#forget(entry);
    for (const oldest of this.#entries.values()) {
      if (this.#bytes <= this.#limits.bytesMax) return;
      if (oldest.flight === undefined) this.#forget(oldest);
    }
  }

  #forget(entry: CachedTranscript): void {
    if (this.#entries.get(entry.sessionId) !== entry) return;
    this.#entries.delete(entry.sessionId);
    this.#count(entry, 0);
  }

  #count(entry: CachedTranscript, bytes: number): void {
    this.#bytes += bytes - entry.countedBytes;
    entry.countedBytes = bytes;
    this.#metrics.transcriptBytes.set(this.#bytes);
  }
}

/** The memory of an almost empty fold; a rough number, so that small folds are not free. */
const SESSION_BYTES = 4_096;

function turnsOf(atOnce: number, waitingMax: number): Semaphore {
  const full = (): ServiceError =>
    overloaded("RATE_LIMITED", `${waitingMax} transcripts wait to be read, and no more may`);
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
