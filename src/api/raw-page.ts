/**
 * Cuts a page of raw events out of a page of rows. Either end of the page may lie inside a merged
 * row: at the caller's cursor, or where the page is full. A row without an index is never cut; the
 * page has all of it or nothing.
 */
import type { SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import type { Page } from "../store/pages.ts";
import { type EventRow, lastSeqOf } from "../store/rows.ts";
import { toRawEvents } from "../contract/expanded.ts";

export interface RawPageRequest {
  /** The caller's own cursor, which may be any event's number. */
  readonly afterSeq: bigint;
  /** Only events below this number; undefined: no bound. */
  readonly beforeSeq: bigint | undefined;
  readonly descending: boolean;
  readonly eventsMax: number;
  /**
   * The limit for payloads and run ids together. A page ends before the event that would exceed it,
   * but holds at least one event.
   */
  readonly bytesMax: number;
}

export interface RawPage {
  readonly items: readonly SessionEvent[];
  readonly nextAfter: bigint;
  readonly nextBefore: bigint;
  readonly hasMore: boolean;
}

export function rawPage(page: Page<"events">, request: RawPageRequest): RawPage {
  const { descending, eventsMax, bytesMax } = request;
  const items: SessionEvent[] = [];
  let bytes = 0;
  for (const row of page.rows) {
    for (const event of descending ? downwards(row, request) : upwards(row, request)) {
      bytes += Buffer.byteLength(event.payload) + Buffer.byteLength(event.runId);
      if (items.length === eventsMax || (items.length > 0 && bytes > bytesMax))
        return { items, ...cursorsWithin(items, request) };
      items.push(event);
    }
  }
  return { items, ...cursorsAround(page, request), hasMore: page.hasMore };
}

function* upwards(
  row: EventRow,
  { afterSeq, beforeSeq }: Pick<RawPageRequest, "afterSeq" | "beforeSeq">,
): Generator<SessionEvent, void, undefined> {
  for (const event of toRawEvents(row, afterSeq)) {
    if (beforeSeq !== undefined && event.seq >= beforeSeq) return;
    yield event;
  }
}

/** Takes no more of a row than the page needs, plus one event that proves that there are more. */
function downwards(row: EventRow, request: RawPageRequest): readonly SessionEvent[] {
  const { afterSeq, beforeSeq, eventsMax } = request;
  if (row.fragments === undefined) return [...upwards(row, request)];
  const last = lastSeqOf(row);
  const end = beforeSeq !== undefined && beforeSeq <= last ? beforeSeq - 1n : last;
  const lowest = end - BigInt(eventsMax) - 1n;
  const from = { afterSeq: lowest > afterSeq ? lowest : afterSeq, beforeSeq };
  return [...upwards(row, from)].toReversed();
}

/** The cursors of a page that was full before the last row ended. */
function cursorsWithin(
  items: readonly SessionEvent[],
  { afterSeq, descending }: RawPageRequest,
): Omit<RawPage, "items"> {
  const lowest = descending ? items.at(-1) : items[0];
  const highest = descending ? items[0] : items.at(-1);
  return {
    nextAfter: highest === undefined ? afterSeq : highest.seq + BigInt(highest.eventCount) - 1n,
    nextBefore: lowest?.seq ?? 0n,
    hasMore: true,
  };
}

/**
 * The cursors of a page that holds all of its rows: the cursors of the rows, limited to the
 * caller's bounds.
 */
function cursorsAround(
  { rows, nextAfter, nextBefore }: Page<"events">,
  { afterSeq, beforeSeq, descending }: RawPageRequest,
): Pick<RawPage, "nextAfter" | "nextBefore"> {
  const highest = descending ? rows[0] : rows.at(-1);
  const lowest = descending ? rows.at(-1) : rows[0];
  const endsInside =
    beforeSeq !== undefined && highest?.fragments !== undefined && lastSeqOf(highest) >= beforeSeq;
  const beginsInside = lowest?.fragments !== undefined && lowest.seq <= afterSeq;
  const upTo = endsInside ? beforeSeq - 1n : nextAfter;
  return {
    nextAfter: upTo > afterSeq ? upTo : afterSeq,
    nextBefore: beginsInside ? afterSeq + 1n : nextBefore,
  };
}
