import type { RowOf, SessionHead, StreamName } from "./rows.ts";

/**
 * A bounded read of contiguous rows, for watchers below their window and for windows below their
 * head.
 */
export interface PageAfter<S extends StreamName> {
  readonly stream: S;
  readonly sessionId: string;
  /**
   * A number between two rows (as `resolveCursor` returns it): the page has rows whose seq is above
   * it.
   */
  readonly after: bigint;
  readonly rowsMax: number;
  /** A page ends before the row that would exceed it, but has at least one row. */
  readonly bytesMax: number;
}

/** The reads of live delivery; store/pages.ts and store/sessions.ts implement them. */
export interface LedgerReader {
  pageAfter<S extends StreamName>(request: PageAfter<S>): Promise<readonly RowOf<S>[]>;
  /** One query for all. A missing session is not in the map; a deleted one is, with `deleted`. */
  heads(sessionIds: readonly string[]): Promise<ReadonlyMap<string, SessionHead>>;
  /**
   * Resolves a caller's `after_seq` (0 or more, at most the head) to a cursor. The first number of
   * a merged row means that the whole row was seen (old clients know no other number). A number
   * strictly inside a merged row means that the row is delivered again.
   */
  resolveCursor(request: CursorRequest): Promise<bigint>;
  /**
   * The positions that no longer hold, because the database went back: the head is lower, or
   * another row has the row's number. A number without a row was erased, and counts as valid. One
   * statement for all.
   */
  lostOf(seen: readonly Seen[]): Promise<ReadonlySet<Seen>>;
}

/** The known position of a stream of a session, from before another server process took over. */
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
   * The caller reads raw events, so its number may belong to any event: a row with an index and
   * with events after that number is delivered again, and expanded from there. For a row without an
   * index, its first number means that the row was seen.
   */
  readonly expand?: boolean;
}
