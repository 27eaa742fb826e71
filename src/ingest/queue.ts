/**
 * Pushes that wait for a batch, a line for each session.
 *
 *   push ─► its session's line ─► a batch ─► done: the line may go on
 *                     ▲               └─ to be sent again: back to the front of the line
 *
 * Two rules keep order. A session has pushes in at most one batch in flight, so its pushes commit in
 * the order they came. And a push whose fate hangs on one before it (the same key, a lower epoch) is
 * left for the next batch, because a batch is judged as a whole.
 *
 * A line is contended after its session was found locked: then it goes alone, in a batch that waits. So
 * does one whose own batch took too long, until a batch of it is committed.
 */
import { SLOW_SESSIONS_MAX } from "./limits.ts";
import { Independent, type NewRow, type Push, storedBytesOf } from "../store/push.ts";

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
  /** Lines that have something and nothing in flight; in turn, so that none starves. */
  readonly #ready = new Set<Line<T>>();
  readonly #contended = new Set<Line<T>>();
  /** Sessions whose own batch took too long, also while nothing of them waits. */
  readonly #slow = new Set<string>();
  #rows = 0;
  #bytes = 0;

  /** Of all that wait, not of what is in flight. */
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

  /** Puts what a batch did not settle before everything else of its sessions, in order. */
  restore(items: readonly T[]): void {
    for (const item of items.toReversed()) {
      this.#line(item.push.sessionId).waiting.unshift(item);
      this.#rows += item.rows;
      this.#bytes += item.bytes;
    }
  }

  /** Takes an item out that is still waiting; false when it is not. */
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

  /** Its own batch took too long. For lines that are in flight. */
  slow(sessionId: string): void {
    this.#slow.add(sessionId);
    const [oldest] = this.#slow;
    if (this.#slow.size > SLOW_SESSIONS_MAX && oldest !== undefined) this.#slow.delete(oldest);
  }

  /** A batch of it was committed. */
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

  /** Puts a line where its state says. */
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

/** A row besides its texts: ids, also that of its run, times, the JSON around them. An estimate. */
const ROW_OVERHEAD_BYTES = 256;

/** What a row takes of the bounds of a batch and of the queue. */
export function bytesOf(row: NewRow): number {
  return storedBytesOf(row) + ROW_OVERHEAD_BYTES;
}

/** From the front, at least one, up to the limits, and not past one that depends on an earlier one. */
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
