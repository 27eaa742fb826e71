import type { RowOf, SessionHead, StreamName } from "./rows.ts";

/** A bounded read of contiguous rows: what a watcher behind its window and a window behind its head need. */
export interface PageAfter<S extends StreamName> {
  readonly stream: S;
  readonly sessionId: string;
  /** In numbers, between two rows (as `resolveCursor` gives it): a row comes when its seq is above. */
  readonly after: bigint;
  readonly rowsMax: number;
  /** A page ends before the row that would pass it; one row always comes. */
  readonly bytesMax: number;
}

/** The reads that live delivery stands on; store/pages.ts and store/sessions.ts are the real ones. */
export interface LedgerReader {
  pageAfter<S extends StreamName>(request: PageAfter<S>): Promise<readonly RowOf<S>[]>;
  /** One query for all; a session that is not there is not in the map, a deleted one is, and says so. */
  heads(sessionIds: readonly string[]): Promise<ReadonlyMap<string, SessionHead>>;
  /**
   * A caller's `after_seq` (0 or more, at most the head) as a cursor in numbers. On the first number
   * of a merged row it means that whole row was seen (old clients know no other); strictly inside
   * one, that the row comes again.
   */
  resolveCursor(request: CursorRequest): Promise<bigint>;
  /**
   * Those that are not so any more, because the database went back: the head is lower, or another row
   * has the row's number. A number that no row has was erased. One statement for all.
   */
  lostOf(seen: readonly Seen[]): Promise<ReadonlySet<Seen>>;
}

/** What is known of a stream of a session from before another server process took over. */
export interface Seen {
  readonly stream: StreamName;
  readonly sessionId: string;
  /** A number that was committed. */
  readonly head: bigint;
  /** The last row that was read. */
  readonly row: { readonly seq: bigint; readonly id: string } | undefined;
}

export interface CursorRequest {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly afterSeq: bigint;
  /**
   * The caller reads raw events, so its number may be any event's: a row that has an index and events
   * after that number comes again, to be expanded from there. Without an index, its first number
   * means that the row was seen.
   */
  readonly expand?: boolean;
}
