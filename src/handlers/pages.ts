/** The two page reads. The contract counts events; the store counts rows. */
import type {
  ListSessionEventsRequest,
  ListSessionEventsResponse,
  SessionEvent,
} from "@session-ledger/proto/ambient/v1/events_pb";
import type {
  ListSessionMessagesRequest,
  ListSessionMessagesResponse,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Page, PageFilter, TimeSpan } from "../store/pages.ts";
import type { StoreReader } from "../store/reader.ts";
import { cursorBeyondHead, livingOf } from "../store/failure.ts";
import { type EventRow, headOf, lastSeqOf, type StreamName } from "../store/rows.ts";
import {
  checkEventTypeFilter,
  checkMessageTypeFilter,
  checkText,
  checkThat,
  checkSessionId,
  refuse,
} from "../contract/checks.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import {
  toRawEvents,
  toSessionEvent,
  toSessionMessage,
  WrittenEvents,
} from "../contract/rows-to-wire.ts";
import type { RowForm } from "../store/columns.ts";
import { checkTimestamp, microsOf } from "../contract/times.ts";

const PAGE_ROWS_DEFAULT = 100;
const PAGE_ROWS_MAX = 1_000;
/** A page with its envelope fits a client's default limit of 4 MiB per message. */
const PAGE_BYTES_MAX = 3 * 1024 * 1024;

type ListHandlers = Pick<
  Handlers<typeof SessionService>,
  "listSessionMessages" | "listSessionEvents"
>;

/** A page of events ordered by the time they happened, for which the contract has no fields. */
export interface EventHistory {
  readonly page: ListSessionEventsResponse;
  /** The number of raw events in the session, independent of the page. */
  readonly total: bigint;
  /** Of each row, if they are wanted and the rows are not expanded. */
  readonly recordedMicros: readonly bigint[];
}

export interface MessageHistory {
  readonly page: ListSessionMessagesResponse;
  /** Of each message, if they are wanted. */
  readonly recordedMicros: readonly bigint[];
}

export interface HistoryHandlers {
  readonly readMessageHistory: (
    request: { readonly page: ListSessionMessagesRequest; readonly recorded: boolean },
    context: CallContext,
  ) => Promise<MessageHistory>;
  readonly readEventHistory: (
    request: {
      readonly page: ListSessionEventsRequest;
      readonly span: TimeSpan;
      readonly recorded: boolean;
    },
    context: CallContext,
  ) => Promise<EventHistory>;
}

export function createListHandlers(
  reader: Pick<StoreReader, "readPage" | "resolveCursor">,
): ListHandlers & HistoryHandlers {
  return {
    async listSessionMessages(request) {
      const { page } = await read("messages", request);
      return messagesOf(page);
    },
    async readMessageHistory({ page: request, recorded }) {
      const { page } = await read("messages", request, { recorded });
      return { page: messagesOf(page), recordedMicros: page.recordedMicros ?? [] };
    },
    async listSessionEvents(request) {
      const { page } = await read("events", request, new WrittenEvents());
      return eventsOf(page, request);
    },
    async readEventHistory({ page: request, span, recorded }) {
      const form = { span, recorded: recorded && !request.expand };
      const { page, end } = await read("events", request, form);
      const { recordedMicros = [] } = page;
      return { page: eventsOf(page, request), total: end, recordedMicros };
    },
  };

  async function read<S extends StreamName>(
    stream: S,
    request: ListSessionMessagesRequest | ListSessionEventsRequest,
    { span, recorded = false, eventOf }: RowForm & { span?: TimeSpan; recorded?: boolean } = {},
  ): Promise<{ readonly page: Page<S>; readonly end: bigint }> {
    check(request);
    const { sessionId } = request;
    const expand = "expand" in request && request.expand;
    const { afterSeq, beforeSeq, itemsMax, descending } = boundsOf(request);
    const readAfter = (after: bigint): Promise<Page<S>> => {
      // Events of the row with the cursor that the caller has; they do not count for its page.
      const seen = afterSeq > after ? Number(afterSeq - after) : 0;
      return reader.readPage({
        stream,
        sessionId,
        after,
        before: beforeSeq,
        descending,
        rowsMax: itemsMax,
        bytesMax: PAGE_BYTES_MAX,
        filter: filterOf(request, span),
        recorded,
        ...(expand ? { eventsMax: itemsMax + seen } : { eventOf }),
      });
    };
    const cursor = { stream, sessionId, afterSeq, expand };
    let page = await readAfter(expand ? await reader.resolveCursor(cursor) : afterSeq);
    const end = headOf(livingOf(sessionId, page.session), stream);
    if (afterSeq > end) throw cursorBeyondHead(end);
    // A row that begins behind the cursor shows that it is between two rows.
    const isBetween = [page.rows[0], page.rows.at(-1)].some((row) => row?.seq === afterSeq + 1n);
    if (!expand && !isBetween && afterSeq !== end) {
      const after = await reader.resolveCursor(cursor);
      if (after !== afterSeq) page = await readAfter(after);
    }
    return { page, end };
  }
}

function messagesOf(page: Page<"messages">): ListSessionMessagesResponse {
  return {
    $typeName: "ambient.v1.ListSessionMessagesResponse",
    items: page.rows.map((row) => toSessionMessage(row)),
    ...cursorsOf(page),
  };
}

function eventsOf(
  page: Page<"events">,
  request: ListSessionEventsRequest,
): ListSessionEventsResponse {
  const { items, cursors } = request.expand
    ? rawPage(page, boundsOf(request))
    : { items: page.rows.map((row) => toSessionEvent(row)), cursors: page };
  return { $typeName: "ambient.v1.ListSessionEventsResponse", items, ...cursorsOf(cursors) };
}

/** Of a page of rows, or of a page of raw events that is cut out of one. */
function boundsOf(request: ListSessionMessagesRequest | ListSessionEventsRequest) {
  return {
    /** The caller's own cursor, which may be any event's number. */
    afterSeq: request.afterSeq > 0n ? request.afterSeq : 0n,
    /** Only events below this number; undefined: no bound. */
    beforeSeq: request.beforeSeq > 0n ? request.beforeSeq : undefined,
    itemsMax: request.pageSize === 0 ? PAGE_ROWS_DEFAULT : request.pageSize,
    descending: request.descending,
  };
}

type Bounds = ReturnType<typeof boundsOf>;
type Cursors = Pick<Page<StreamName>, "nextAfter" | "nextBefore" | "hasMore">;

function cursorsOf(page: Cursors) {
  return { nextAfterSeq: page.nextAfter, nextBeforeSeq: page.nextBefore, hasMore: page.hasMore };
}

const PAGE_SIZE_RULE = `must be 1 to ${PAGE_ROWS_MAX}, or 0 for ${PAGE_ROWS_DEFAULT}`;

function check(request: ListSessionMessagesRequest | ListSessionEventsRequest): void {
  const { pageSize, afterSeq, beforeSeq } = request;
  refuse([
    checkSessionId(request.sessionId),
    checkThat("page_size", pageSize >= 0 && pageSize <= PAGE_ROWS_MAX, PAGE_SIZE_RULE),
    checkThat("before_seq", beforeSeq >= 0n, "must not be negative"),
    checkThat("before_seq", beforeSeq <= 0n || afterSeq <= 0n, "must not be given with after_seq"),
    ...("runId" in request
      ? [checkEventTypeFilter(request.eventTypes), checkText("run_id", request.runId)]
      : [checkMessageTypeFilter(request.eventTypes)]),
    request.createdAfter && checkTimestamp("created_after", request.createdAfter),
    request.createdBefore && checkTimestamp("created_before", request.createdBefore),
  ]);
}

/** Undefined without a filter: an unfiltered page takes one statement. */
function filterOf(
  request: ListSessionMessagesRequest | ListSessionEventsRequest,
  span: TimeSpan | undefined,
): PageFilter | undefined {
  const runId = "runId" in request ? request.runId : "";
  const { eventTypes, createdAfter, createdBefore } = request;
  const times = [createdAfter, createdBefore, span?.startMicros, span?.endMicros];
  const hasTime = times.some((time) => time !== undefined);
  if (eventTypes.length === 0 && runId === "" && !hasTime) return undefined;
  return {
    eventTypes,
    runId,
    createdAfterMicros: createdAfter && microsOf(createdAfter),
    createdBeforeMicros: createdBefore && microsOf(createdBefore),
    ...(span === undefined ? {} : { span }),
  };
}

/**
 * Cuts a page of raw events out of a page of rows. Both ends may lie inside a merged row. A row
 * without an index is never cut. The page has at least one event; its bytes are those of payloads and run ids.
 */
function rawPage(
  page: Page<"events">,
  bounds: Bounds,
): { readonly items: SessionEvent[]; readonly cursors: Cursors } {
  const { descending, itemsMax } = bounds;
  const items: SessionEvent[] = [];
  let bytes = 0;
  for (const row of page.rows) {
    for (const event of descending ? downwards(row, bounds) : upwards(row, bounds)) {
      bytes += Buffer.byteLength(event.payload) + Buffer.byteLength(event.runId);
      if (items.length === itemsMax || (items.length > 0 && bytes > PAGE_BYTES_MAX))
        return { items, cursors: cursorsWithin(items, bounds) };
      items.push(event);
    }
  }
  return { items, cursors: { ...cursorsAround(page, bounds), hasMore: page.hasMore } };
}

function* upwards(
  row: EventRow,
  { afterSeq, beforeSeq }: Pick<Bounds, "afterSeq" | "beforeSeq">,
): Generator<SessionEvent, void, undefined> {
  for (const event of toRawEvents(row, afterSeq)) {
    if (beforeSeq !== undefined && event.seq >= beforeSeq) return;
    yield event;
  }
}

/** Takes no more of a row than the page needs, plus one event that proves that more exist. */
function downwards(row: EventRow, bounds: Bounds): readonly SessionEvent[] {
  const { afterSeq, beforeSeq, itemsMax } = bounds;
  if (row.fragments === undefined) return [...upwards(row, bounds)];
  const last = lastSeqOf(row);
  const end = beforeSeq !== undefined && beforeSeq <= last ? beforeSeq - 1n : last;
  const lowest = end - BigInt(itemsMax) - 1n;
  const from = { afterSeq: lowest > afterSeq ? lowest : afterSeq, beforeSeq };
  return [...upwards(row, from)].toReversed();
}

/** The cursors of a page that was full before the last row ended. */
function cursorsWithin(items: readonly SessionEvent[], { afterSeq, descending }: Bounds): Cursors {
  const lowest = descending ? items.at(-1) : items[0];
  const highest = descending ? items[0] : items.at(-1);
  return {
    nextAfter: highest === undefined ? afterSeq : highest.seq + BigInt(highest.eventCount) - 1n,
    nextBefore: lowest?.seq ?? 0n,
    hasMore: true,
  };
}

/** The cursors of a page with all of its rows, limited to the caller's bounds. */
function cursorsAround(
  { rows, nextAfter, nextBefore }: Page<"events">,
  { afterSeq, beforeSeq, descending }: Bounds,
): Omit<Cursors, "hasMore"> {
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
