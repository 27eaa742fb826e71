/** The two pages. What `next_after_seq` and the rest mean is in the contract; the store counts rows. */
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
import { invalidArgument, ServiceError } from "../base/errors.ts";
import type { Page, PageFilter, PageRequest } from "../store/pages.ts";
import type { LedgerReader } from "../store/reader.ts";
import { cursorBeyondHead, sessionDeleted, sessionNotFound } from "../store/refusals.ts";
import { headOf, type StreamName } from "../store/rows.ts";
import { type Check, checkEventTypeFilter, checkText, checkTime, violationsOf } from "./checks.ts";
import type { Handlers } from "./context.ts";
import { toSessionEvent, toSessionMessage } from "./rows-to-wire.ts";
import { checkSessionId } from "./session-id.ts";
import { microsOf } from "./times.ts";

const PAGE_ROWS_DEFAULT = 100;
const PAGE_ROWS_MAX = 1_000;
/** A page fits a client's default limit of 4 MiB a message, with what is around the payloads. */
const PAGE_BYTES_MAX = 3 * 1024 * 1024;

export interface PageReader {
  readPage<S extends StreamName>(request: PageRequest<S>): Promise<Page<S>>;
}

type ListHandlers = Pick<
  Handlers<typeof SessionService>,
  "listSessionMessages" | "listSessionEvents"
>;

export function createListHandlers(reader: LedgerReader & PageReader): ListHandlers {
  return {
    async listSessionMessages(request): Promise<ListSessionMessagesResponse> {
      const page = await read("messages", request);
      return {
        $typeName: "ambient.v1.ListSessionMessagesResponse",
        items: page.rows.map((row) => toSessionMessage(row)),
        ...cursorsOf(page),
      };
    },
    async listSessionEvents(request): Promise<ListSessionEventsResponse> {
      const page = await read("events", request);
      return {
        $typeName: "ambient.v1.ListSessionEventsResponse",
        items: page.rows.map((row) => toSessionEvent(row)),
        ...cursorsOf(page),
      };
    },
  };

  async function read<S extends StreamName>(
    stream: S,
    request: ListSessionMessagesRequest | ListSessionEventsRequest,
  ): Promise<Page<S>> {
    check(request);
    const { sessionId } = request;
    const head = (await reader.heads([sessionId])).get(sessionId);
    if (head === undefined) throw sessionNotFound(sessionId);
    if (head.deleted) throw sessionDeleted(sessionId);
    const afterSeq = request.afterSeq > 0n ? request.afterSeq : 0n;
    if (afterSeq > headOf(head, stream)) throw cursorBeyondHead(headOf(head, stream));
    return reader.readPage({
      stream,
      sessionId,
      after: await reader.resolveCursor({ stream, sessionId, afterSeq }),
      before: request.beforeSeq > 0n ? request.beforeSeq : undefined,
      descending: request.descending,
      rowsMax: request.pageSize === 0 ? PAGE_ROWS_DEFAULT : request.pageSize,
      bytesMax: PAGE_BYTES_MAX,
      filter: filterOf(request),
    });
  }
}

function cursorsOf(page: Page<StreamName>): {
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
  if ("expand" in request && request.expand) {
    throw new ServiceError("unimplemented", "NOT_IMPLEMENTED", "expand is not served yet", {
      violations: [{ field: "expand", description: "expected false in this version" }],
    });
  }
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

/** Undefined where nothing is asked for: an unfiltered page takes one statement. */
function filterOf(
  request: ListSessionMessagesRequest | ListSessionEventsRequest,
): PageFilter | undefined {
  const runId = "runId" in request ? request.runId : "";
  const { eventTypes, createdAfter, createdBefore } = request;
  const filtered =
    eventTypes.length > 0 ||
    runId !== "" ||
    createdAfter !== undefined ||
    createdBefore !== undefined;
  if (!filtered) return undefined;
  return {
    eventTypes,
    runId,
    createdAfterMicros: optionalMicros(createdAfter),
    createdBeforeMicros: optionalMicros(createdBefore),
  };
}

function optionalMicros(time: Timestamp | undefined): bigint | undefined {
  return time === undefined ? undefined : microsOf(time);
}
