/**
 * The newest rows of one watched session, as one replica knows them (docs/reading.md). Numbers are
 * contiguous, so `head + 1` is the only row that may be appended without asking the table.
 *
 * A window is a value: no function changes its argument. A commit must not copy thousands of rows,
 * so successive windows share one array, and each window sees the part from `start` to `end`. A new
 * row is pushed after the end of the newest window, where no older window looks. The array is cut
 * to the held rows when the dead part is larger than the live part, in rows or in bytes. So an
 * append costs the same however many rows are held, and memory stays within twice the limits and
 * one row.
 */
export interface Row {
  readonly firstSeq: bigint;
  readonly lastSeq: bigint;
  readonly bytes: number;
}

export interface Window<R extends Row = Row> {
  /** The held rows are those from `start` to `end`, contiguous, oldest first. */
  readonly shared: R[];
  readonly start: number;
  readonly end: number;
  /** Bytes of the held rows. */
  readonly bytes: number;
  /** Bytes of the rows in `shared` that are no longer held. */
  readonly deadBytes: number;
  /** The number before the oldest held row; a cursor below it must read the table. */
  readonly floor: bigint;
  /** The last number held. */
  readonly head: bigint;
  /** The highest number that a commit, a read or a hint has stated; never below `head`. */
  readonly hintedHead: bigint;
}

interface WindowLimits {
  readonly rowsMax: number;
  readonly bytesMax: number;
}

/** Opens an empty window at the session's head, which was just read. */
export function openWindow<R extends Row>(head: bigint): Window<R> {
  const nothing = { shared: [], start: 0, end: 0, bytes: 0, deadBytes: 0 };
  return { ...nothing, floor: head, head, hintedHead: head };
}

/** A hint that another replica has committed up to `head`; the hint may be old. */
export function hint<R extends Row>(window: Window<R>, head: bigint): Window<R> {
  return head > window.hintedHead ? { ...window, hintedHead: head } : window;
}

/** Appends rows that were committed here, or read after `head`. Other rows count as a hint. */
export function append<R extends Row>(
  window: Window<R>,
  rows: readonly R[],
  limits: WindowLimits,
): Window<R> {
  let { shared, start, end, bytes, deadBytes, head, hintedHead } = window;
  for (const row of rows) {
    if (row.lastSeq > hintedHead) hintedHead = row.lastSeq;
    if (row.firstSeq !== head + 1n) continue;
    if (end !== shared.length) {
      // Another append to this same window has pushed rows already, and its result must not change.
      shared = shared.slice(start, end);
      end -= start;
      start = 0;
      deadBytes = 0;
    }
    shared.push(row);
    end += 1;
    bytes += row.bytes;
    head = row.lastSeq;
  }
  return evict({ ...window, shared, start, end, bytes, deadBytes, head, hintedHead }, limits);
}

/**
 * Adds a page that was read after `head` when `hintedHead` was the highest stated number. Rows
 * missing below its first row were erased: the window continues after the gap. If the page is empty
 * and `hintedHead` has not risen since, the rows do not exist, and the caller waits for the next
 * hint.
 */
export function fill<R extends Row>(
  window: Window<R>,
  asked: Pick<Window, "head" | "hintedHead">,
  rows: readonly R[],
  limits: WindowLimits,
): Window<R> {
  const first = rows[0];
  const connected =
    first !== undefined && first.firstSeq > window.head + 1n
      ? { ...openWindow<R>(first.firstSeq - 1n), hintedHead: window.hintedHead }
      : window;
  const filled = append(connected, rows, limits);
  const moved = filled.head !== asked.head || filled.hintedHead !== asked.hintedHead;
  return moved ? filled : { ...filled, hintedHead: filled.head };
}

/** Drops every row and keeps its position. */
export function emptied<R extends Row>(window: Window<R>): Window<R> {
  return { ...openWindow<R>(window.head), hintedHead: window.hintedHead };
}

export function needsRead(window: Window): boolean {
  return window.hintedHead > window.head;
}

export type Taken<R extends Row> =
  | { readonly kind: "rows"; readonly rows: readonly R[] }
  /** The cursor is below the window's floor: read a page of the table from the cursor. */
  | { readonly kind: "page" }
  /** Nothing new: wait until the window changes. */
  | { readonly kind: "wait" };

/** The next step of a watcher whose last number is `cursor`; at least one row if any. */
export function take<R extends Row>(
  window: Window<R>,
  cursor: bigint,
  limits: WindowLimits,
): Taken<R> {
  if (cursor < window.floor) return { kind: "page" };
  const rows: R[] = [];
  let bytes = 0;
  for (let at = firstAfter(window, cursor); at < window.end; at += 1) {
    const row = window.shared[at];
    if (row === undefined) break;
    bytes += row.bytes;
    if (rows.length > 0 && (rows.length === limits.rowsMax || bytes > limits.bytesMax)) break;
    rows.push(row);
  }
  return rows.length > 0 ? { kind: "rows", rows } : { kind: "wait" };
}

/** Index of the oldest held row above `cursor`; `end` without one. */
function firstAfter(window: Window, cursor: bigint): number {
  let low = window.start;
  let high = window.end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const row = window.shared[middle];
    if (row !== undefined && row.lastSeq > cursor) high = middle;
    else low = middle + 1;
  }
  return low;
}

function evict<R extends Row>(window: Window<R>, limits: WindowLimits): Window<R> {
  let { start, bytes, deadBytes, floor } = window;
  for (; start < window.end; start += 1) {
    if (window.end - start <= limits.rowsMax && bytes <= limits.bytesMax) break;
    const row = window.shared[start];
    if (row === undefined) break;
    bytes -= row.bytes;
    deadBytes += row.bytes;
    floor = row.lastSeq;
  }
  const rest = { ...window, start, bytes, deadBytes, floor };
  const mostlyDead = start > window.end - start || deadBytes > limits.bytesMax;
  if (start === 0 || !mostlyDead) return rest;
  const shared = window.shared.slice(start, window.end);
  return { ...rest, shared, start: 0, end: shared.length, deadBytes: 0 };
}
