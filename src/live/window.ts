/**
 * The newest rows of one watched session, as one replica knows them. Watchers are only cursors: what
 * they need is in the window, or further back in the table, or not committed yet.
 *
 *   table ── page ──► a watcher that is behind the window (at its own pace)
 *   table ── one read, whoever asks ──► window ──► every watcher that is inside it
 *   commit on this replica, the next number ──────────▲
 *
 * Numbers are contiguous, so `head + 1` is the only row that may be appended without asking the
 * table. A commit that does not connect, and a hint that another replica is further, only raise
 * `known`; the caller then reads from `head` until the two are equal. Losing a hint costs time, and
 * a slow watcher costs one page at a time; neither costs another watcher anything.
 *
 * A window is a value: no function changes the one it is given. So that a commit does not copy
 * thousands of rows, successive windows share one array, of which each sees the part from `start`
 * to `end`: a row is pushed behind the end of the newest, where no older window looks. The array is
 * cut to what is held once more of it is dead than alive, in rows or in bytes, so an append costs
 * the same however many rows are held, and memory stays within twice the limits and one row.
 */
export interface Row {
  readonly firstSeq: bigint;
  readonly lastSeq: bigint;
  readonly bytes: number;
}

export interface Window<R extends Row = Row> {
  /** Held rows are those from `start` to `end`, contiguous, oldest first. */
  readonly shared: R[];
  readonly start: number;
  readonly end: number;
  /** Of the held rows. */
  readonly bytes: number;
  /** Of the rows in `shared` that are no longer held. */
  readonly deadBytes: number;
  /** The number before the oldest held row; a cursor below it must read the table. */
  readonly floor: bigint;
  /** The last number held. */
  readonly head: bigint;
  /** The highest number that anyone has heard of; never below `head`. */
  readonly known: bigint;
}

export interface WindowLimits {
  readonly rowsMax: number;
  readonly bytesMax: number;
}

/** Opens at the session's head as just read, holding nothing. */
export function openWindow<R extends Row>(head: bigint): Window<R> {
  const nothing = { shared: [], start: 0, end: 0, bytes: 0, deadBytes: 0 };
  return { ...nothing, floor: head, head, known: head };
}

/** Another replica has committed up to `head`, or has not and the hint is old. */
export function hint<R extends Row>(window: Window<R>, head: bigint): Window<R> {
  return head > window.known ? { ...window, known: head } : window;
}

/** Rows committed here, or read from the table after `head`; what does not connect is only a hint. */
export function append<R extends Row>(
  window: Window<R>,
  rows: readonly R[],
  limits: WindowLimits,
): Window<R> {
  let { shared, start, end, bytes, deadBytes, head, known } = window;
  for (const row of rows) {
    if (row.lastSeq > known) known = row.lastSeq;
    if (row.firstSeq !== head + 1n) continue;
    if (end !== shared.length) {
      // Somebody has appended to this same window before, and that other future must not change.
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
  return evict({ ...window, shared, start, end, bytes, deadBytes, head, known }, limits);
}

/**
 * A page of the table, asked for after `head` when `known` was the highest number heard of. Rows
 * that are missing below its first row are erased ones: the window goes on behind them. When a page
 * brings nothing though nobody has heard of more since it was asked for, there is nothing: to ask
 * again at once would spin, so the next hint is waited for.
 */
export function fill<R extends Row>(
  window: Window<R>,
  asked: Pick<Window, "head" | "known">,
  rows: readonly R[],
  limits: WindowLimits,
): Window<R> {
  const first = rows[0];
  const connected =
    first !== undefined && first.firstSeq > window.head + 1n
      ? { ...openWindow<R>(first.firstSeq - 1n), known: window.known }
      : window;
  const filled = append(connected, rows, limits);
  const moved = filled.head !== asked.head || filled.known !== asked.known;
  return moved ? filled : { ...filled, known: filled.head };
}

/** Lets go of every row and stays where it is. */
export function emptied<R extends Row>(window: Window<R>): Window<R> {
  return { ...openWindow<R>(window.head), known: window.known };
}

export function needsRead(window: Window): boolean {
  return window.known > window.head;
}

export type Taken<R extends Row> =
  | { readonly kind: "rows"; readonly rows: readonly R[] }
  /** Behind the window: read a page of the table from the cursor. */
  | { readonly kind: "page" }
  /** Nothing new: wait until the window changes. */
  | { readonly kind: "wait" };

/** What a watcher at `cursor` (the last number it has) gets next; at least one row if there is one. */
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

/** Index of the oldest held row above `cursor`; `end` when there is none. */
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
  const held = { ...window, start, bytes, deadBytes, floor };
  const mostlyDead = start > window.end - start || deadBytes > limits.bytesMax;
  return start > 0 && mostlyDead ? compact(held) : held;
}

function compact<R extends Row>(window: Window<R>): Window<R> {
  const shared = window.shared.slice(window.start, window.end);
  return { ...window, shared, start: 0, end: shared.length, deadBytes: 0 };
}
