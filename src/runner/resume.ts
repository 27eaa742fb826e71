import { systemClock } from "../base/clock.ts";
import { RpcFailure } from "./failure.ts";
import { Retries, type RetryOptions } from "./retry.ts";

export interface Resumable<Row> {
  /** Watches from a cursor; `onAttached` is called when the service has accepted the watch. */
  readonly open: (afterSeq: bigint, onAttached: () => void) => AsyncGenerator<Row, void, undefined>;
  readonly afterSeq: bigint;
  /** The cursor after a row. */
  readonly cursorOf: (row: Row) => bigint;
}

/**
 * A watch that was open this long worked; one that ends sooner counts as one more failure in a row.
 */
const STEADY_MS = 5_000;

/**
 * One endless watch over several connections: each row after the cursor once, in order, also
 * through restarts of the service. A watch that ends without a failure was ended by a proxy, so it
 * is opened again, like a failed one. A watch whose token ended while it was open is opened again
 * too. Other failures (no such session, a cursor above the head, a token that is refused from the
 * start) do not pass with time, and the caller gets them.
 */
export async function* resume<Row>(
  { open, afterSeq, cursorOf }: Resumable<Row>,
  options: RetryOptions,
): AsyncGenerator<Row, void, undefined> {
  const { clock = systemClock } = options;
  const retries = new Retries(options);
  let cursor = afterSeq;
  for (;;) {
    let attachedMs: number | undefined;
    try {
      for await (const row of open(cursor, () => (attachedMs = clock.monotonicMs()))) {
        const next = cursorOf(row);
        // A cursor inside a merged row makes that row come again; a row that ends at or before the
        // cursor is skipped.
        if (next <= cursor) continue;
        cursor = next;
        retries.succeeded();
        yield row;
      }
      throw new RpcFailure("UNAVAILABLE", "the watch ended");
    } catch (error) {
      if (!(error instanceof RpcFailure)) throw error;
      // A token that was accepted has ended since; its source may have another one by now.
      const isOver = error.code === "UNAUTHENTICATED" && attachedMs !== undefined;
      if (!(error.mayPass || isOver)) throw error;
      if (attachedMs !== undefined && clock.monotonicMs() - attachedMs >= STEADY_MS)
        retries.succeeded();
      await retries.pauseAfter(error);
    }
  }
}
