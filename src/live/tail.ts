/**
 * The end of one watched stream of a session: its window, the watchers that wait at its head, and
 * the one read that fills the window for all of them. A tail exists while its stream has a watcher.
 *
 *   opening ── first head ──► open ── no watcher, deleted, stop ──► ended
 *
 * While the tail is opening, a commit of this replica only raises the known head, so no commit
 * between the question for the head and its answer is forgotten. While the tail is open, a commit
 * whose number follows the head is appended and wakes the waiting watchers. Known rows above the
 * head are read one page at a time, and only while a watcher waits: watchers below the window's
 * floor read for themselves, and busy watchers need nothing. A failed read is tried again with a
 * growing delay, and watchers stay; a defect ends the tail.
 *
 *   open ── suspect ──► suspect ── confirm, then the next head ──► open
 *                        └────── end: rows that were seen are lost ──► ended
 *
 * A database may go back in time: a standby without the newest rows is promoted, or a backup is
 * restored. When a tail suspects that, it delivers nothing until the last row that was seen through
 * it has been looked up. If another row has that row's number, or the stream's head is lower than a
 * head that was seen, rows are lost and the tail ends.
 */
import { backoffMs } from "@session-ledger/base/backoff";
import type { ServiceError } from "@session-ledger/base/errors";
import type { Log } from "../observability/log.ts";
import { defectOf } from "../store/failure.ts";
import type { Seen } from "../store/reader.ts";
import { lastSeqOf, type RowOf, type StoredRow, type StreamName } from "../store/rows.ts";
import { type LiveLimits, READ_RETRY } from "./limits.ts";
import type { Reads } from "./reads.ts";
import type { Timers } from "@session-ledger/base/timers";
import {
  append,
  emptied,
  fill,
  hint,
  needsRead,
  openWindow,
  type Row,
  take,
  type Taken,
  type Window,
} from "./window.ts";

/** A row in the window. */
export interface WindowRow<S extends StreamName> extends Row {
  readonly row: RowOf<S>;
  /** When its commit was published here, on the monotonic clock; `undefined` if it was read. */
  readonly publishedAtMs: number | undefined;
}

/** A watcher that waits at the head. */
interface Waiter {
  wake(): void;
}

export interface TailParts {
  readonly reads: Reads;
  readonly memory: WindowMemory;
  readonly timers: Timers;
  readonly log: Log;
  readonly limits: LiveLimits;
  /** A commit has a number that was seen already, and the window does not hold that row. */
  readonly onRepeat: (sessionId: string) => void;
}

export class Tail<S extends StreamName> {
  readonly stream: S;
  readonly sessionId: string;
  /** Counted by the registry of the tails. */
  watchers = 0;
  readonly #parts: TailParts;
  #waiting = new Set<Waiter>();
  #window: Window<WindowRow<S>> | undefined;
  /** The highest number that a commit or hint stated while the tail was opening. */
  #hintedHead = 0n;
  /** The highest number that is known to have been committed. */
  seenSeq = 0n;
  /** The last row that a watcher was given, or could have been given. */
  #seenRow: Seen["row"];
  /** Counts doubts: an answer to a question from before the last one proves nothing. */
  suspicions = 0;
  /** How often rows in memory became worthless: erased, suspect, or too many. */
  emptied = 0;
  isSuspect = false;
  #reading = false;
  #failures = 0;
  #cancelRetry: (() => void) | undefined;
  #closed = false;
  /** The reason of `end`. */
  endReason: ServiceError | undefined;

  constructor(parts: TailParts, stream: S, sessionId: string) {
    this.#parts = parts;
    this.stream = stream;
    this.sessionId = sessionId;
  }

  get windowBytes(): number {
    return this.#window?.bytes ?? 0;
  }

  /** True when the table could not be read, so known rows arrive late. */
  get degraded(): boolean {
    return this.#failures > 0 && this.#window !== undefined && needsRead(this.#window);
  }

  get seen(): Seen {
    const { stream, sessionId } = this;
    return { stream, sessionId, head: this.seenSeq, row: this.#seenRow };
  }

  /** Held and seen rows may be lost: no watcher gets anything before `confirm`. */
  suspect(): void {
    if (this.#closed) return;
    this.suspicions += 1;
    this.#hintedHead = 0n;
    if (this.#window === undefined) return;
    this.empty();
    this.#window = undefined;
    this.isSuspect = true;
  }

  /** The last seen row exists; the next head opens the tail again. */
  confirm(): void {
    this.isSuspect = false;
  }

  /** Notes a row that was read, for one watcher or for all of them. */
  observe(row: RowOf<S> | undefined): void {
    if (row === undefined) return;
    const last = lastSeqOf(row);
    if (last > this.seenSeq) this.seenSeq = last;
    if (this.#seenRow !== undefined && row.seq <= this.#seenRow.seq) return;
    this.#seenRow = { seq: row.seq, id: row.id };
  }

  /** A number that is certainly in the table; the window holds nothing below it. */
  get floor(): bigint {
    return this.#window?.floor ?? 0n;
  }

  /** The table has the stream up to `head`; the first call opens the tail. */
  onHead(head: bigint): void {
    if (this.#closed || this.isSuspect) return;
    if (head > this.seenSeq) this.seenSeq = head;
    if (this.#window !== undefined) return this.onHint(head);
    this.#become(hint(openWindow<WindowRow<S>>(head), this.#hintedHead));
    this.wakeAll();
  }

  /**
   * A hint never opens the tail: rows below a window's floor must be in the table, and a hint may
   * be wrong.
   */
  onHint(head: bigint): void {
    if (this.#closed) return;
    if (this.#window === undefined) {
      if (head > this.#hintedHead) this.#hintedHead = head;
      return;
    }
    this.#become(hint(this.#window, head));
    this.#read();
  }

  /** Rows committed here, in order; they may be known already, and need not follow the head. */
  onCommit(rows: readonly RowOf<S>[], publishedAtMs: number): void {
    if (this.#closed) return;
    const [first] = rows;
    if (first !== undefined && first.seq <= this.seenSeq && !this.isSuspect) {
      // Ordinarily a page read was faster than the answer of the commit.
      const isHeld = this.#window?.shared.some(({ row }) => row.id === first.id);
      if (isHeld !== true) this.#parts.onRepeat(this.sessionId);
    }
    if (this.#window === undefined) {
      for (const row of rows) {
        const last = lastSeqOf(row);
        if (last > this.#hintedHead) this.#hintedHead = last;
      }
      return;
    }
    const { head } = this.#window;
    this.#become(append(this.#window, windowRowsOf<S>(rows, publishedAtMs), this.#windowLimits));
    if (this.#window.head > head) this.observe(rows.at(-1));
    if (this.#window.head > head) this.wakeAll();
    else this.#read();
  }

  take(cursor: bigint): Taken<WindowRow<S>> {
    const { pageRowsMax, pageBytesMax } = this.#parts.limits;
    if (this.#window === undefined) return { kind: "wait" };
    return take(this.#window, cursor, { rowsMax: pageRowsMax, bytesMax: pageBytesMax });
  }

  /** Wakes `waiter` once, when the tail may have something for it. */
  wait(waiter: Waiter): void {
    this.#waiting.add(waiter);
    this.#read();
  }

  forget(waiter: Waiter): void {
    this.#waiting.delete(waiter);
  }

  wakeAll(): void {
    const woken = this.#waiting;
    this.#waiting = new Set();
    for (const waiter of woken) waiter.wake();
  }

  empty(): void {
    this.emptied += 1;
    if (this.#window !== undefined) this.#become(emptied(this.#window));
  }

  /** Ends the tail, and every watcher with the reason. */
  end(reason: ServiceError): void {
    this.endReason ??= reason;
    this.close();
    this.wakeAll();
  }

  close(): void {
    this.empty();
    this.#closed = true;
    this.#cancelRetry?.();
  }

  get #windowLimits() {
    const { windowRowsMax, windowBytesMax } = this.#parts.limits;
    return { rowsMax: windowRowsMax, bytesMax: windowBytesMax };
  }

  #become(window: Window<WindowRow<S>>): void {
    const byBytes = window.bytes - this.windowBytes;
    this.#window = window;
    if (byBytes !== 0) this.#parts.memory.onChange(this, byBytes);
  }

  #read(): void {
    if (this.#reading || this.#waiting.size === 0) return;
    const asked = this.#window;
    if (asked === undefined || !needsRead(asked)) return;
    this.#reading = true;
    void this.#readPage(asked);
  }

  async #readPage(asked: Window<WindowRow<S>>): Promise<void> {
    const { reads, limits } = this.#parts;
    const { stream, sessionId } = this;
    const page = { rowsMax: limits.pageRowsMax, bytesMax: limits.pageBytesMax };
    const before = this.suspicions;
    try {
      const rows = await reads.pageAfter({ stream, sessionId, after: asked.head, ...page });
      if (this.#closed) return;
      this.#failures = 0;
      if (this.#window === undefined || this.suspicions !== before) {
        this.#reading = false;
        return this.#read();
      }
      this.observe(rows.at(-1));
      this.#become(fill(this.#window, asked, windowRowsOf<S>(rows, undefined), this.#windowLimits));
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
    // Logged once per outage and not once per try: thousands of tails may be in the same outage.
    if (this.#failures === 1) log.warn({ stream, sessionId, err: error }, "live read failed");
    const defect = defectOf(error);
    if (defect !== undefined) return this.end(defect);
    const delayMs = backoffMs(READ_RETRY, this.#failures - 1, Math.random());
    this.#cancelRetry = timers.after(delayMs, () => {
      this.#reading = false;
      // Commits on this replica have delivered the missing rows.
      if (!this.degraded) this.#failures = 0;
      this.#read();
    });
    if (this.#failures === 1) this.wakeAll(); // The watchers must report that they are late.
  }
}

// Per event row without its payload: 0.8 KB in the window, 0.3 KB for its message (100,000 rows,
// after a collection, Node 24.21).
const ROW_BYTES = 1_120;

function windowRowsOf<S extends StreamName>(
  rows: readonly RowOf<S>[],
  publishedAtMs: number | undefined,
): readonly WindowRow<S>[] {
  return rows.map((row) => ({
    firstSeq: row.seq,
    lastSeq: lastSeqOf(row),
    bytes: bytesOf(row),
    row,
    publishedAtMs,
  }));
}

/** Counts one byte per character: most text is ASCII, and the bound need not be exact. */
function bytesOf(row: StoredRow): number {
  const otherBytes =
    row.stream === "messages"
      ? (row.sender?.length ?? 0)
      : (row.fragments?.byteLength ?? 0) + row.runId.length;
  return ROW_BYTES + row.payload.length + otherBytes;
}

/**
 * Bounds the memory of all windows. The windows with the oldest appends are emptied first: their
 * watchers most likely have all rows, and the others read the table.
 */
interface MeasuredWindow {
  readonly windowBytes: number;
  /** Drops every row; calls `onChange`. */
  empty(): void;
}

export class WindowMemory {
  readonly #bytesMax: number;
  /** The windows that hold rows; the one with the oldest append comes first. */
  readonly #windows = new Set<MeasuredWindow>();
  bytes = 0;

  constructor(limits: { readonly windowsBytesMax: number }) {
    this.#bytesMax = limits.windowsBytesMax;
  }

  onChange(window: MeasuredWindow, byBytes: number): void {
    this.bytes += byBytes;
    this.#windows.delete(window);
    if (window.windowBytes > 0) this.#windows.add(window);
    for (const oldest of this.#windows) {
      if (this.bytes <= this.#bytesMax) break;
      oldest.empty();
    }
  }
}
