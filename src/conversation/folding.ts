/** The work of transcripts.ts: shared folds, and rows in pages and slices. */
import type { TranscriptRowsAfter } from "../store/pages.ts";
import { setImmediate as turnOfEventLoop, setTimeout as rest } from "node:timers/promises";
import { ServiceError } from "@session-ledger/base/errors";

/** One piece of work for all callers that wait for it; aborted when the last one has left. */
export class SharedFold {
  readonly #controller = new AbortController();
  readonly #done: Promise<void>;
  #waiting = 0;

  /** `work` ends soon after its signal aborts. */
  constructor(work: (signal: AbortSignal) => Promise<void>) {
    this.#done = work(this.#controller.signal);
    this.#done.catch(() => undefined); // The waiting callers get the error, if any are left.
  }

  /** Rejects as the fold does, or when the signal aborts. An ending fold is only awaited. */
  async join(signal: AbortSignal | undefined): Promise<void> {
    if (this.#controller.signal.aborted) {
      await this.#done.catch(() => undefined);
      return;
    }
    signal?.throwIfAborted();
    this.#waiting += 1;
    const { promise: left, reject } = Promise.withResolvers<never>();
    const leave = (): void => reject(signal?.reason);
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await Promise.race([this.#done, left]);
    } finally {
      signal?.removeEventListener("abort", leave);
      this.#waiting -= 1;
      if (this.#waiting === 0) this.#controller.abort(abandoned());
    }
  }
}

function abandoned(): ServiceError {
  return new ServiceError("cancelled", "CANCELLED", "everybody left who waited for the transcript");
}

/** The fields of a row that give its number and its size. */
export interface CountedRow {
  readonly seq: bigint;
  readonly eventCount: number;
  readonly payload: string;
}

export interface RowsLimits {
  readonly pageRowsMax: number;
  readonly pageBytesMax: number;
  /** Rows folded without a pause; after them other work gets a turn of the event loop. */
  readonly sliceRowsMax: number;
  readonly sliceBytesMax: number;
  /**
   * The pause after a row that is larger than a slice. The parse of 1 MB may take 60 ms, and a
   * request needs many turns of the event loop: the slowest one took 390 ms during such rows with a
   * turn after each, and 127 ms with 10 ms.
   */
  readonly restMs: number;
}

interface RowsRequest {
  readonly sessionId: string;
  /** A number between two rows. */
  readonly after: bigint;
  /** A committed number; it may rise while the rows are read. */
  readonly wanted: () => bigint;
}

/** The next rows, perhaps none, and the number up to which no others exist. */
export interface Slice<R extends CountedRow> {
  readonly rows: readonly R[];
  readonly seq: bigint;
}

/**
 * The rows of a stream in pages of contiguous rows, up to the wanted number; the next page is read
 * while one is folded.
 */
export async function* rowsAfter<R extends CountedRow>(
  readRows: (page: TranscriptRowsAfter) => Promise<readonly R[]>,
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

/** Not retriable: nothing makes the session smaller. */
export function transcriptTooLarge(seq: bigint): ServiceError {
  const message = `the transcript of the session is too large to be made, from event ${seq} on`;
  return new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", message);
}
