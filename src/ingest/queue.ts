/**
 * Pushes that wait for a batch, with one line per session.
 *
 *   push ─► its session's line ─► a batch ─► done: the line may go on
 *                     ▲               └─ to be sent again: back to the front of the line
 *
 * Two rules keep the order. A session has pushes in at most one batch in flight, so its pushes
 * commit in the order they arrived. And a push whose outcome depends on an earlier push (the same
 * key, a lower epoch) waits for the next batch, because a batch is judged as a whole.
 *
 * A line is contended after its session was found locked: then it goes alone, in a batch that waits
 * for the lock. A line whose own batch took too long is contended too, until one of its batches is
 * committed.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { Independent, type Push, type StoredRow } from "../store/rows.ts";
import type { ServiceError } from "@session-ledger/base/errors";
import type { Span } from "../observability/trace.ts";
import { callerGone, databaseUnavailable, outcomeUnknown, RETRY_LIMIT_MS } from "./refusal.ts";

/** Sessions remembered as slow; a forgotten one shares a batch again. */
const SLOW_SESSIONS_MAX = 1_000;

export interface Waiting {
  readonly push: Push;
  readonly rows: number;
  readonly bytes: number;
}

interface Line<T> {
  readonly sessionId: string;
  waiting: T[];
  inFlight: boolean;
  contended: boolean;
}

export interface BatchLimits {
  readonly rowsMax: number;
  readonly bytesMax: number;
}

export class PushQueue<T extends Waiting> {
  readonly #lines = new Map<string, Line<T>>();
  /** Lines that have pushes and none in flight; they take turns, so that none starves. */
  readonly #ready = new Set<Line<T>>();
  readonly #contended = new Set<Line<T>>();
  /** Sessions whose own batch took too long, also while they have no waiting push. */
  readonly #slow = new BoundedMap<string, true>(SLOW_SESSIONS_MAX);
  #rows = 0;
  #bytes = 0;

  /** Rows of all waiting pushes, without those in flight. */
  get rows(): number {
    return this.#rows;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(item: T): void {
    const line = this.#line(item.push.sessionId);
    line.waiting.push(item);
    this.#rows += item.rows;
    this.#bytes += item.bytes;
    this.#place(line);
  }

  /** Puts unsettled items of a batch before the waiting items of their sessions, in order. */
  restore(items: readonly T[]): void {
    for (const item of items.toReversed()) {
      this.#line(item.push.sessionId).waiting.unshift(item);
      this.#rows += item.rows;
      this.#bytes += item.bytes;
    }
  }

  /** Removes a waiting item; false when the item does not wait. */
  remove(item: T): boolean {
    const line = this.#lines.get(item.push.sessionId);
    const index = line?.waiting.indexOf(item) ?? -1;
    if (line === undefined || index < 0) return false;
    line.waiting.splice(index, 1);
    this.#rows -= item.rows;
    this.#bytes -= item.bytes;
    this.#place(line);
    return true;
  }

  /** A batch of ready sessions, a fair share of each; empty when nothing is ready. */
  take(limits: BatchLimits): T[] {
    const taken: T[] = [];
    let { rowsMax: rows, bytesMax: bytes } = limits;
    const lines = [...this.#ready];
    const share = Math.max(1, Math.floor(rows / Math.max(1, lines.length)));
    for (const line of lines) {
      if (rows <= 0 || bytes <= 0) break;
      const items = head(line.waiting, { rowsMax: Math.min(share, rows), bytesMax: bytes });
      rows -= sum(items, "rows");
      bytes -= sum(items, "bytes");
      this.#depart(line, items);
      taken.push(...items);
    }
    return taken;
  }

  /** A batch of one contended session; empty when there is none. */
  takeContended(limits: BatchLimits): T[] {
    for (const line of this.#contended) {
      const items = head(line.waiting, limits);
      this.#depart(line, items);
      return items;
    }
    return [];
  }

  /** The batch that held these sessions has ended. */
  release(
    sessionIds: Iterable<string>,
    options: { readonly contended: ReadonlySet<string> },
  ): void {
    for (const sessionId of sessionIds) {
      const line = this.#lines.get(sessionId);
      if (line === undefined) continue;
      line.inFlight = false;
      line.contended = options.contended.has(sessionId);
      this.#place(line);
    }
  }

  /** Marks a session whose own batch took too long. For lines that are in flight. */
  slow(sessionId: string): void {
    this.#slow.set(sessionId, true);
  }

  /** Removes that mark after a committed batch. */
  quick(sessionId: string): void {
    this.#slow.delete(sessionId);
  }

  #line(sessionId: string): Line<T> {
    let line = this.#lines.get(sessionId);
    if (line === undefined) {
      line = { sessionId, waiting: [], inFlight: false, contended: false };
      this.#lines.set(sessionId, line);
    }
    return line;
  }

  #depart(line: Line<T>, items: readonly T[]): void {
    line.waiting.splice(0, items.length);
    line.inFlight = true;
    this.#rows -= sum(items, "rows");
    this.#bytes -= sum(items, "bytes");
    this.#place(line);
  }

  /** Puts a line into the set that matches its state. */
  #place(line: Line<T>): void {
    const goes = line.waiting.length > 0 && !line.inFlight;
    const isAlone = line.contended || this.#slow.has(line.sessionId);
    if (goes && !isAlone) this.#ready.add(line);
    else this.#ready.delete(line);
    if (goes && isAlone) this.#contended.add(line);
    else this.#contended.delete(line);
    if (line.waiting.length === 0 && !line.inFlight) this.#lines.delete(line.sessionId);
  }
}

/**
 * A row without its texts: the ids, also of its run, the times, the JSON around them. An estimate.
 */
const ROW_OVERHEAD_BYTES = 256;

/** The size of a push in the bounds of a batch and of the queue. */
export function queuedBytesOf({ bytes, rows }: Push): number {
  return bytes + rows.length * ROW_OVERHEAD_BYTES;
}

/**
 * Items from the front: at least one, up to the limits, and not past an item that depends on an
 * earlier one.
 */
function head<T extends Waiting>(waiting: readonly T[], limits: BatchLimits): T[] {
  const taken: T[] = [];
  const independent = new Independent();
  let { rowsMax: rows, bytesMax: bytes } = limits;
  for (const item of waiting) {
    if (taken.length > 0 && (item.rows > rows || item.bytes > bytes)) break;
    if (!independent.admit(item.push)) break;
    taken.push(item);
    rows -= item.rows;
    bytes -= item.bytes;
  }
  return taken;
}

function sum(items: readonly Waiting[], field: "rows" | "bytes"): number {
  let total = 0;
  for (const item of items) total += item[field];
  return total;
}

/** A push that waits for its commit, and the results of its tries so far. */

/** The answer to a committed push; a repeated push gets the answer of the earlier push. */
export interface Acknowledged {
  /**
   * The rows of the push, none where it has none. After a repeat or a lost first answer, only the
   * row with the key.
   */
  readonly rows: readonly StoredRow[];
  readonly deduplicated: boolean;
}

interface Taken extends Waiting {
  readonly resolve: (acknowledged: Acknowledged) => void;
  readonly reject: (error: unknown) => void;
  readonly gone: () => boolean;
  /** The time when the push was taken, on the monotonic clock. */
  readonly sinceMs: number;
  readonly span: Span | undefined;
}

export interface Item extends Taken {
  /**
   * The start of the time that counts as tries: a batch that another session delayed does not
   * count.
   */
  triedSinceMs: number;
  sent: boolean;
  /** A try was lost after sending: the push may be committed. */
  uncertain: boolean;
}

export function newItem(taken: Taken): Item {
  return { ...taken, triedSinceMs: taken.sinceMs, sent: false, uncertain: false };
}

/** False: the caller left before its push was first sent. The push is refused and not stored. */
export function present(item: Item): boolean {
  if (item.sent || !item.gone()) return true;
  item.reject(callerGone());
  return false;
}

/** True when the push was tried for longer than the limit. */
export function isOver({ triedSinceMs }: Item, nowMs: number): boolean {
  return nowMs - triedSinceMs > RETRY_LIMIT_MS;
}

/**
 * True when the push may be sent again: its key or range tells the table that it is stored already. A
 * stored claim has changed the state for which it was made.
 */
export function isRepeatable({ key, range, seen }: Push): boolean {
  return key !== undefined || range !== undefined || seen !== undefined;
}

/**
 * All tries decide, and not only the last one: a try that was lost after sending may be committed.
 */
export function givenUp(item: Item, cause: unknown): ServiceError {
  return item.uncertain ? outcomeUnknown(cause) : databaseUnavailable(cause);
}

export function rowsOf(items: readonly Item[]): number {
  return items.reduce((rows, { push }) => rows + push.rows.length, 0);
}

/** Records one commit in the trace of each push of the batch. */
export function traceCommit(
  items: readonly Item[],
  elapsed: { readonly fromMs: number; readonly untilMs: number },
  committed: boolean,
): void {
  const traced = items.filter(({ span }) => span !== undefined);
  if (traced.length === 0) return;
  const attributes = {
    "session_ledger.batch_pushes": items.length,
    "session_ledger.batch_rows": rowsOf(items),
    "session_ledger.committed": committed,
  };
  for (const { span } of traced) span?.took("commit", elapsed, attributes);
}
