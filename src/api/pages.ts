/**
 * The two page reads. The contract defines `next_after_seq` and the other fields; the store counts
 * rows.
 */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type {
  ListSessionEventsRequest,
  ListSessionEventsResponse,
} from "../../gen/ambient/v1/events_pb.ts";
import type {
  ListSessionMessagesRequest,
  ListSessionMessagesResponse,
} from "../../gen/ambient/v1/messages_pb.ts";
import type { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { invalidArgument } from "../base/errors.ts";
import type { Page, PageFilter, PageRequest, Span } from "../store/pages.ts";
import type { LedgerReader } from "../store/reader.ts";
import { cursorBeyondHead, sessionDeleted, sessionNotFound } from "../store/failure.ts";
import { headOf, type StreamName } from "../store/rows.ts";
import {
  type Check,
  checkEventTypeFilter,
  checkText,
  checkTime,
  violationsOf,
} from "../contract/checks.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import { rawPage } from "./raw-page.ts";
import { toSessionEvent, toSessionMessage } from "../contract/rows-to-wire.ts";
import { checkSessionId } from "../contract/session-id.ts";
import { microsOf } from "../contract/times.ts";

const PAGE_ROWS_DEFAULT = 100;
const PAGE_ROWS_MAX = 1_000;
/** A page with its envelope fits a client's default limit of 4 MiB per message. */
const PAGE_BYTES_MAX = 3 * 1024 * 1024;

export interface PageReader {
  readPage<S extends StreamName>(request: PageRequest<S>): Promise<Page<S>>;
}

type ListHandlers = Pick<
  Handlers<typeof SessionService>,
  "listSessionMessages" | "listSessionEvents"
>;

/** A page of events ordered by the time they happened, for which the contract has no fields. */
export interface EventHistory {
  readonly page: ListSessionEventsResponse;
  /** The number of raw events in the session, independent of the page. */
  readonly total: bigint;
}

export interface EventHistoryRequest {
  readonly page: ListSessionEventsRequest;
  readonly span: Span;
}

export interface HistoryHandlers {
  readonly readEventHistory: (
    request: EventHistoryRequest,
    context: CallContext,
  ) => Promise<EventHistory>;
}

export function createListHandlers(
  reader: LedgerReader & PageReader,
): ListHandlers & HistoryHandlers {
  return {
    async listSessionMessages(request): Promise<ListSessionMessagesResponse> {
      const { page } = await read("messages", request);
      return {
        $typeName: "ambient.v1.ListSessionMessagesResponse",
        items: page.rows.map((row) => toSessionMessage(row)),
        ...cursorsOf(page),
      };
    },
    async listSessionEvents(request): Promise<ListSessionEventsResponse> {
      const { page } = await read("events", request);
      return eventsOf(page, request);
    },
    async readEventHistory({ page: request, span }): Promise<EventHistory> {
      const { page, end } = await read("events", request, span);
      return { page: eventsOf(page, request), total: end };
    },
  };

  async function read<S extends StreamName>(
    stream: S,
    request: ListSessionMessagesRequest | ListSessionEventsRequest,
    span?: Span,
  ): Promise<{ readonly page: Page<S>; readonly end: bigint }> {
    check(request);
    const { sessionId } = request;
    const expand = "expand" in request && request.expand;
    const head = (await reader.heads([sessionId])).get(sessionId);
    if (head === undefined) throw sessionNotFound(sessionId);
    if (head.deleted) throw sessionDeleted(sessionId);
    const { afterSeq, beforeSeq, itemsMax } = boundsOf(request);
    const end = headOf(head, stream);
    if (afterSeq > end) throw cursorBeyondHead(end);
    const after = await reader.resolveCursor({ stream, sessionId, afterSeq, expand });
    // The caller already has this many events of the row that holds the cursor; its page does not
    // count them.
    const seen = afterSeq > after ? Number(afterSeq - after) : 0;
    const page = await reader.readPage({
      stream,
      sessionId,
      after,
      before: beforeSeq,
      descending: request.descending,
      rowsMax: itemsMax,
      bytesMax: PAGE_BYTES_MAX,
      filter: filterOf(request, span),
      ...(expand && { eventsMax: itemsMax + seen }),
    });
    return { page, end };
  }
}

function eventsOf(
  page: Page<"events">,
  request: ListSessionEventsRequest,
): ListSessionEventsResponse {
  if (request.expand) return rawEventsOf(page, request);
  return {
    $typeName: "ambient.v1.ListSessionEventsResponse",
    items: page.rows.map((row) => toSessionEvent(row)),
    ...cursorsOf(page),
  };
}

function boundsOf(request: ListSessionMessagesRequest | ListSessionEventsRequest) {
  return {
    afterSeq: request.afterSeq > 0n ? request.afterSeq : 0n,
    beforeSeq: request.beforeSeq > 0n ? request.beforeSeq : undefined,
    itemsMax: request.pageSize === 0 ? PAGE_ROWS_DEFAULT : request.pageSize,
  };
}

function rawEventsOf(
  page: Page<"events">,
  request: ListSessionEventsRequest,
): ListSessionEventsResponse {
  const { itemsMax: eventsMax, ...bounds } = boundsOf(request);
  const { descending } = request;
  const raw = rawPage(page, { ...bounds, descending, eventsMax, bytesMax: PAGE_BYTES_MAX });
  return {
    $typeName: "ambient.v1.ListSessionEventsResponse",
    items: [...raw.items],
    ...cursorsOf(raw),
  };
}

function cursorsOf(page: Pick<Page<StreamName>, "nextAfter" | "nextBefore" | "hasMore">): {
  nextAfterSeq: bigint;
  nextBeforeSeq: bigint;
  hasMore: boolean;
} {
  return { nextAfterSeq: page.nextAfter, nextBeforeSeq: page.nextBefore, hasMore: page.hasMore };
}

function check(request: ListSessionMessagesRequest | ListSessionEventsRequest): void {
  const violations = violationsOf([
    checkSessionId(request.sessionId),
    checkPageSize(request.pageSize),
    checkCursors(request),
    checkEventTypeFilter(request.eventTypes),
    "runId" in request ? checkText("run_id", request.runId) : undefined,
    checkTime("created_after", request.createdAfter),
    checkTime("created_before", request.createdBefore),
  ]);
  if (violations.length > 0) throw invalidArgument(violations);
}

function checkPageSize(pageSize: number): Check {
  if (pageSize >= 0 && pageSize <= PAGE_ROWS_MAX) return undefined;
  return {
    field: "page_size",
    description: `page_size must be 1 to ${PAGE_ROWS_MAX}, or 0 for ${PAGE_ROWS_DEFAULT}`,
  };
}

function checkCursors(request: { readonly afterSeq: bigint; readonly beforeSeq: bigint }): Check {
  if (request.beforeSeq < 0n) {
    return { field: "before_seq", description: "before_seq must not be negative" };
  }
  if (request.beforeSeq > 0n && request.afterSeq > 0n) {
    return { field: "before_seq", description: "before_seq must not be given with after_seq" };
  }
  return undefined;
}

/** Undefined without a filter: an unfiltered page takes one statement. */
function filterOf(
  request: ListSessionMessagesRequest | ListSessionEventsRequest,
  span: Span | undefined,
): PageFilter | undefined {
  const runId = "runId" in request ? request.runId : "";
  const { eventTypes, createdAfter, createdBefore } = request;
  const filtered =
    eventTypes.length > 0 ||
    runId !== "" ||
    createdAfter !== undefined ||
    createdBefore !== undefined ||
    span?.startMicros !== undefined ||
    span?.endMicros !== undefined;
  if (!filtered) return undefined;
  return {
    eventTypes,
    runId,
    createdAfterMicros: optionalMicros(createdAfter),
    createdBeforeMicros: optionalMicros(createdBefore),
    ...(span === undefined ? {} : { span }),
  };
}

function optionalMicros(time: Timestamp | undefined): bigint | undefined {
  return time === undefined ? undefined : microsOf(time);
}
