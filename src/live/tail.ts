/**
 * The end of one watched stream of a session: its window, those who wait at its head, and the one
 * read that fills it for all of them. It exists while somebody watches.
 *
 *   opening ── first head ──► open ── nobody watches, deleted, stop ──► ended
 *
 * While it opens, commits of this replica only raise what is known, so none between the question for
 * the head and the answer is forgotten. While it is open, a commit that connects is appended and
 * wakes who waits. What is known beyond the head is read by one page at a time, and only while
 * somebody waits: those who are behind the window read for themselves, and those who are not asking
 * need nothing. A read that fails is made again, later and later; watchers stay.
 *
 *   open ── doubt ──► doubted ── trust, then the next head ──► open
 *                        └────── end: rows that were seen are lost ──► ended
 *
 * A database may go back: a standby that lacks the newest rows is promoted, or a backup is restored. A
 * tail that has reason to believe so gives nothing to anybody until the last row that was seen through
 * it has been looked up; when another row has its number, everything from some row on is lost.
 */
import { backoffMs } from "../base/backoff.ts";
import type { ServiceError } from "../base/errors.ts";
import type { Log } from "../observability/log.ts";
import type { Seen } from "../store/reader.ts";
import { lastSeqOf, type RowOf, type StoredRow, type StreamName } from "../store/rows.ts";
import { type LiveLimits, READ_RETRY } from "./limits.ts";
import type { Reads } from "./reads.ts";
import type { Timers } from "../base/timers.ts";
import {
  append,
  emptied,
  fill,
  hint,
  needsRead,
  openWindow,
  type Row,
  type Taken,
  take,
  type Window,
} from "./window.ts";
import type { WindowMemory } from "./window-memory.ts";

/** A row as the window holds it. */
export interface Held<S extends StreamName> extends Row {
  readonly row: RowOf<S>;
  /** When its commit was published here, on the monotonic clock; `undefined` if it was read. */
  readonly publishedAtMs: number | undefined;
}

/** Somebody who waits at the head. */
export interface Waiter {
  wake(): void;
}

export interface TailParts {
  readonly reads: Reads;
  readonly memory: WindowMemory;
  readonly timers: Timers;
  readonly log: Log;
  readonly limits: LiveLimits;
  /** A commit has a number that was seen already, and no row that is held. */
  readonly repeated: (sessionId: string) => void;
}

export class Tail<S extends StreamName> {
  readonly stream: S;
  readonly sessionId: string;
  /** Counted by whoever keeps the book of the tails. */
  watchers = 0;
  readonly #parts: TailParts;
  readonly #waiting = new Set<Waiter>();
  #window: Window<Held<S>> | undefined;
  /** The highest number heard of while the tail opens. */
  #heard = 0n;
  /** The highest number that is known to have been committed. */
  #seenSeq = 0n;
  /** The last row that was given to anybody, or could have been. */
  #seenRow: Seen["row"];
  #doubts = 0;
  #isDoubted = false;
  #reading = false;
  #failures = 0;
  #cancelRetry: (() => void) | undefined;
  #closed = false;
  #ended: ServiceError | undefined;

  constructor(parts: TailParts, stream: S, sessionId: string) {
    this.#parts = parts;
    this.stream = stream;
    this.sessionId = sessionId;
  }

  get heldBytes(): number {
    return this.#window?.bytes ?? 0;
  }

  /** The table could not be read; what is known to be there is late. */
  get degraded(): boolean {
    return this.#failures > 0 && this.#window !== undefined && needsRead(this.#window);
  }

  /** The reason of `end`. */
  get ended(): ServiceError | undefined {
    return this.#ended;
  }

  get seenSeq(): bigint {
    return this.#seenSeq;
  }

  get seen(): Seen {
    const { stream, sessionId } = this;
    return { stream, sessionId, head: this.#seenSeq, row: this.#seenRow };
  }

  get isDoubted(): boolean {
    return this.#isDoubted;
  }

  /** How often it was doubted: what was asked before the last time says nothing. */
  get doubts(): number {
    return this.#doubts;
  }

  /** What is held and what was seen may be lost: nobody gets anything before `trust`. */
  doubt(): void {
    if (this.#closed) return;
    this.#doubts += 1;
    this.#heard = 0n;
    if (this.#window === undefined) return;
    this.empty();
    this.#window = undefined;
    this.#isDoubted = true;
  }

  /** The last row that was seen is there; the next head opens the tail again. */
  trust(): void {
    this.#isDoubted = false;
  }

  /** Notes a row that was read, for one watcher or for all of them. */
  saw(row: RowOf<S> | undefined): void {
    if (row === undefined) return;
    const last = lastSeqOf(row);
    if (last > this.#seenSeq) this.#seenSeq = last;
    if (this.#seenRow !== undefined && row.seq <= this.#seenRow.seq) return;
    this.#seenRow = { seq: row.seq, id: row.id };
  }

  /** A number that is in the table for sure, below which the window has nothing. */
  get floor(): bigint {
    return this.#window?.floor ?? 0n;
  }

  /** The stream has got to `head`, as read from the table; the first time opens the tail. */
  found(head: bigint): void {
    if (this.#closed || this.#isDoubted) return;
    if (head > this.#seenSeq) this.#seenSeq = head;
    if (this.#window !== undefined) return this.hinted(head);
    this.#become(hint(openWindow<Held<S>>(head), this.#heard));
    this.wakeAll();
  }

  /**
   * The stream has got to `head`, as heard. That opens nothing: what is below a window's floor has to
   * be in the table for sure, and a hint may be wrong.
   */
  hinted(head: bigint): void {
    if (this.#closed) return;
    if (this.#window === undefined) {
      if (head > this.#heard) this.#heard = head;
      return;
    }
    this.#become(hint(this.#window, head));
    this.#read();
  }

  /** Rows that were committed here, in order; they may be known already, and need not connect. */
  committed(rows: readonly RowOf<S>[], publishedAtMs: number): void {
    if (this.#closed) return;
    const [first] = rows;
    if (first !== undefined && first.seq <= this.#seenSeq && !this.#isDoubted) {
      // Ordinarily a page was quicker than the answer of the commit.
      if (!this.#holds(first)) this.#parts.repeated(this.sessionId);
    }
    if (this.#window === undefined) {
      for (const row of rows) {
        const last = lastSeqOf(row);
        if (last > this.#heard) this.#heard = last;
      }
      return;
    }
    const { head } = this.#window;
    this.#become(append(this.#window, held<S>(rows, publishedAtMs), this.#windowLimits));
    if (this.#window.head > head) this.saw(rows.at(-1));
    if (this.#window.head > head) this.wakeAll();
    else this.#read();
  }

  take(cursor: bigint): Taken<Held<S>> {
    const { pageRowsMax, pageBytesMax } = this.#parts.limits;
    if (this.#window === undefined) return { kind: "wait" };
    return take(this.#window, cursor, { rowsMax: pageRowsMax, bytesMax: pageBytesMax });
  }

  /** `waiter` is woken, once, when there may be something for it. */
  wait(waiter: Waiter): void {
    this.#waiting.add(waiter);
    this.#read();
  }

  forget(waiter: Waiter): void {
    this.#waiting.delete(waiter);
  }

  wakeAll(): void {
    const woken = [...this.#waiting];
    this.#waiting.clear();
    for (const waiter of woken) waiter.wake();
  }

  empty(): void {
    if (this.#window !== undefined) this.#become(emptied(this.#window));
  }

  /** Nobody gets anything from here any more, and everybody is told why. */
  end(reason: ServiceError): void {
    this.#ended ??= reason;
    this.close();
    this.wakeAll();
  }

  close(): void {
    this.empty();
    this.#closed = true;
    this.#cancelRetry?.();
  }

  #holds(row: RowOf<S>): boolean {
    const window = this.#window;
    return window?.shared.some((one) => one.row.id === row.id) === true;
  }

  get #windowLimits() {
    const { windowRowsMax, windowBytesMax } = this.#parts.limits;
    return { rowsMax: windowRowsMax, bytesMax: windowBytesMax };
  }

  #become(window: Window<Held<S>>): void {
    const byBytes = window.bytes - this.heldBytes;
    this.#window = window;
    if (byBytes !== 0) this.#parts.memory.changed(this, byBytes);
  }

  #read(): void {
    if (this.#reading || this.#waiting.size === 0) return;
    const asked = this.#window;
    if (asked === undefined || !needsRead(asked)) return;
    this.#reading = true;
    void this.#readPage(asked);
  }

  async #readPage(asked: Window<Held<S>>): Promise<void> {
    const { reads, limits } = this.#parts;
    const { stream, sessionId } = this;
    const page = { rowsMax: limits.pageRowsMax, bytesMax: limits.pageBytesMax };
    const doubts = this.#doubts;
    try {
      const rows = await reads.pageAfter({ stream, sessionId, after: asked.head, ...page });
      if (this.#closed) return;
      this.#failures = 0;
      if (this.#window === undefined || this.#doubts !== doubts) {
        this.#reading = false;
        return this.#read();
      }
      this.saw(rows.at(-1));
      this.#become(fill(this.#window, asked, held<S>(rows, undefined), this.#windowLimits));
      this.#reading = false;
      this.wakeAll();
    } catch (error) {
      this.#retryLater(error);
    }
  }

  #retryLater(error: unknown): void {
    if (this.#closed) return;
    this.#failures += 1;
    const { log, timers } = this.#parts;
    const { stream, sessionId } = this;
    // Once an outage, not once a try: thousands of tails may be in the same one.
    if (this.#failures === 1) log.warn({ stream, sessionId, err: error }, "live read failed");
    const delayMs = backoffMs(READ_RETRY, this.#failures - 1, Math.random());
    this.#cancelRetry = timers.after(delayMs, () => {
      this.#reading = false;
      if (!this.degraded) this.#failures = 0; // Commits here have brought what was missing.
      this.#read();
    });
    if (this.#failures === 1) this.wakeAll(); // They have to say that they are late.
  }
}

// Heap of an event row beside its payload: 0.8 KB as the window holds it and 0.3 KB for the message
// made of it (after a collection, 100,000 rows, Node 24.21).
const ROW_BYTES = 1_120;

function held<S extends StreamName>(
  rows: readonly RowOf<S>[],
  publishedAtMs: number | undefined,
): readonly Held<S>[] {
  return rows.map((row) => ({
    firstSeq: row.seq,
    lastSeq: lastSeqOf(row),
    bytes: bytesOf(row),
    row,
    publishedAtMs,
  }));
}

/** One byte a character: most text is, and a bound need not be exact. */
function bytesOf(row: StoredRow): number {
  const beside =
    row.stream === "messages"
      ? (row.sender?.length ?? 0)
      : (row.fragments?.byteLength ?? 0) + row.runId.length;
  return ROW_BYTES + row.payload.length + beside;
}
