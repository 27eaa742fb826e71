/** The event rows of a session for a fold: in pages, the next one on its way while one is folded. */
import { setImmediate as turnOfEventLoop, setTimeout as rest } from "node:timers/promises";

/** A row, as far as its number and its size go. */
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
  /** What comes at once; behind it others get their turn of the event loop. */
  readonly sliceRowsMax: number;
  readonly sliceBytesMax: number;
  /**
   * Behind a row that is larger than a slice. To parse 1 MB may take 60 ms, and a request needs many
   * turns, as answers of the database come: with a turn alone the slowest other one took 390 ms while
   * such rows were folded, with 10 ms behind each 127 ms.
   */
  readonly restMs: number;
}

export interface RowsRequest {
  readonly sessionId: string;
  /** Between two rows. */
  readonly after: bigint;
  /** A number that is committed; it may rise while the rows come. */
  readonly wanted: () => bigint;
}

/** The next rows, which may be none, and the number up to which nothing else is there. */
export interface Slice<R extends CountedRow> {
  readonly rows: readonly R[];
  readonly seq: bigint;
}

/** Ends when it has come to what is wanted. */
export async function* rowsAfter<R extends CountedRow>(
  readRows: ReadRows<R>,
  request: RowsRequest,
  limits: RowsLimits,
): AsyncGenerator<Slice<R>, void, undefined> {
  const { sessionId, wanted } = request;
  const { pageRowsMax: rowsMax, pageBytesMax: bytesMax } = limits;
  const read = (after: bigint) => {
    const page = readRows({ sessionId, after, rowsMax, bytesMax });
    page.catch(() => undefined); // It may fail while the one before it is folded; it is awaited later.
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
      // What was committed before the question and is not in its answer was erased.
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
    await next?.page.catch(() => undefined); // Nothing of this still runs when it has ended.
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
