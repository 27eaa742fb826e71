/** The event rows of a session for a fold, in pages; the next page is read while one is folded. */
import { setImmediate as turnOfEventLoop, setTimeout as rest } from "node:timers/promises";

/** The fields of a row that give its number and its size. */
export interface CountedRow {
  readonly seq: bigint;
  readonly eventCount: number;
  readonly payload: string;
}

/** A page of contiguous rows. */
export type ReadRows<R extends CountedRow> = (page: {
  readonly sessionId: string;
  readonly after: bigint;
  readonly rowsMax: number;
  readonly bytesMax: number;
}) => Promise<readonly R[]>;

export interface RowsLimits {
  readonly pageRowsMax: number;
  readonly pageBytesMax: number;
  /** Rows folded without a pause; after them other work gets a turn of the event loop. */
  readonly sliceRowsMax: number;
  readonly sliceBytesMax: number;
  /**
   * The pause after a row that is larger than a slice. The parse of 1 MB may take 60 ms, and a
   * request needs many turns, because the answers of the database arrive one by one. With a turn
   * alone, the slowest other request took 390 ms while such rows were folded; with 10 ms after each
   * row, 127 ms.
   */
  readonly restMs: number;
}

export interface RowsRequest {
  readonly sessionId: string;
  /** A number between two rows. */
  readonly after: bigint;
  /** A committed number; it may rise while the rows are read. */
  readonly wanted: () => bigint;
}

/** The next rows, perhaps none, and the number up to which there are no others. */
export interface Slice<R extends CountedRow> {
  readonly rows: readonly R[];
  readonly seq: bigint;
}

/** Ends when it has reached the wanted number. */
export async function* rowsAfter<R extends CountedRow>(
  readRows: ReadRows<R>,
  request: RowsRequest,
  limits: RowsLimits,
): AsyncGenerator<Slice<R>, void, undefined> {
  const { sessionId, wanted } = request;
  const { pageRowsMax: rowsMax, pageBytesMax: bytesMax } = limits;
  const read = (after: bigint) => {
    const page = readRows({ sessionId, after, rowsMax, bytesMax });
    // The read may fail while the page before it is folded; the error is awaited later.
    page.catch(() => undefined);
    return { page, committed: wanted() };
  };
  let cursor = request.after;
  let next: ReturnType<typeof read> | undefined;
  try {
    while (cursor < wanted()) {
      const { page, committed } = next ?? read(cursor);
      next = undefined;
      const rows = await page;
      const last = rows.at(-1);
      // Rows that were committed before the read and are missing in its answer were erased.
      cursor = last === undefined ? committed : lastNumberOf(last);
      if (last === undefined) yield { rows, seq: cursor };
      else if (cursor < wanted()) next = read(cursor);
      for (const slice of slicesOf(rows, limits)) {
        yield slice;
        if (slice.isLarge) await rest(limits.restMs);
        else await turnOfEventLoop();
      }
    }
  } finally {
    await next?.page.catch(() => undefined); // No read is still running when this has ended.
  }
}

/** The last number that the row takes. */
export function lastNumberOf({ seq, eventCount }: CountedRow): bigint {
  return seq + BigInt(eventCount) - 1n;
}

function* slicesOf<R extends CountedRow>(
  rows: readonly R[],
  { sliceRowsMax, sliceBytesMax }: RowsLimits,
): Generator<Slice<R> & { readonly isLarge: boolean }, void, undefined> {
  let slice: R[] = [];
  let bytes = 0;
  for (const row of rows) {
    slice.push(row);
    bytes += row.payload.length;
    if (slice.length < sliceRowsMax && bytes < sliceBytesMax) continue;
    const isLarge = row.payload.length >= sliceBytesMax;
    yield { rows: slice, seq: lastNumberOf(row), isLarge };
    slice = [];
    bytes = 0;
  }
  const last = slice.at(-1);
  if (last !== undefined) yield { rows: slice, seq: lastNumberOf(last), isLarge: false };
}
