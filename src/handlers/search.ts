/** SearchTexts: the checks of a question, and the tokens of pages. The room `search` finds the texts. */
import {
  type FoundText,
  SearchOrder,
  type SearchTextsRequest,
} from "@session-ledger/proto/ambient/v1/search_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import { checkSize, checkTextBytes, checkThat, refuse, TOKEN_RULE } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { checkTimestamp, microsOf, timestampOf } from "../contract/times.ts";
import type { TextMatch, SearchCursor, SearchPage, SearchRequest } from "../search/find.ts";
import { ROLES } from "../search/text-fold.ts";
import { belongingChecks } from "./sessions.ts";

const TEXTS_MAX = 100;
const QUERY_BYTES_MAX = 1_024;

export function createSearchHandlers(
  /** Undefined: the question has no word to look for. */
  { find }: { readonly find: (request: SearchRequest) => Promise<SearchPage | undefined> },
  { searchLanguage: language }: { readonly searchLanguage: string | undefined },
): Pick<Handlers<typeof SessionService>, "searchTexts"> {
  return {
    async searchTexts(request, { principal }) {
      if (language === undefined) {
        const message = "search is switched off (SEARCH_LANGUAGE=off)";
        throw new ServiceError("failed_precondition", "SEARCH_OFF", message);
      }
      const cursor = request.pageToken === "" ? undefined : cursorIn(request);
      refuse(checksOf(request, cursor));
      const { pageSize, after, before } = request;
      const page = await find({
        ...request,
        language,
        scope: principal,
        afterMicros: after && microsOf(after),
        beforeMicros: before && microsOf(before),
        isBestFirst: request.orderBy === SearchOrder.BEST,
        textsMax: pageSize || TEXTS_MAX,
        cursor,
      });
      if (page === undefined) throw invalidArgument([NO_WORD]);
      return {
        $typeName: "ambient.v1.SearchTextsResponse",
        items: page.found.map(foundOf),
        nextPageToken: page.next === undefined ? "" : tokenOf(page.next),
        ...(page.indexedUntilMicros !== undefined && {
          indexedUntil: timestampOf(page.indexedUntilMicros),
        }),
      };
    },
  };
}

const NO_WORD = {
  field: "query",
  description: "query must have a word to look for, which is not among the most common ones",
};

function checksOf(request: SearchTextsRequest, cursor: SearchCursor | undefined) {
  const { query, sessionId, role, eventType, pageSize, pageToken } = request;
  const isBest = request.orderBy === SearchOrder.BEST;
  const isOrder = isBest || request.orderBy === SearchOrder.UNSPECIFIED;
  const isRole = role === "" || ROLES.some((one) => one === role);
  const isToken = cursor === undefined ? pageToken === "" : "skipped" in cursor === isBest;
  return [
    query.trim() === "" ? NO_WORD : checkTextBytes("query", query, QUERY_BYTES_MAX),
    ...belongingChecks(request),
    checkTextBytes("agent_id", request.agentId, QUERY_BYTES_MAX),
    checkTextBytes("session_id", sessionId, ID_BYTES_MAX),
    checkThat("role", isRole, `must be one of ${ROLES.join(", ")}`),
    checkTextBytes("event_type", eventType, ID_BYTES_MAX),
    request.after && checkTimestamp("after", request.after),
    request.before && checkTimestamp("before", request.before),
    checkThat("order_by", isOrder, "must be SEARCH_ORDER_BEST, or not given"),
    checkSize("page_size", pageSize, TEXTS_MAX),
    checkThat("page_token", isToken, TOKEN_RULE),
  ];
}

function foundOf({ key, excerpt, ...found }: TextMatch): FoundText {
  return {
    $typeName: "ambient.v1.FoundText",
    ...found,
    sessionId: key.sessionId,
    createdAt: timestampOf(key.micros),
    excerpt: excerpt.map((piece) => ({ $typeName: "ambient.v1.ExcerptPiece", ...piece })),
  };
}

/** Of the best matches, the number of pages before; else the last text of the page. */
const SKIPPED = /^best-(\d{1,4})$/;
const KEY =
  /^(-?\d{1,18})\.(\d{1,6})\.([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.([^\0]{1,255})$/;

function tokenOf(cursor: SearchCursor): string {
  if ("skipped" in cursor) return `best-${cursor.skipped}`;
  const { micros, part, digest, sessionId } = cursor;
  return `${micros}.${part}.${digest}.${sessionId}`;
}

function cursorIn({ pageToken }: SearchTextsRequest): SearchCursor | undefined {
  const skipped = SKIPPED.exec(pageToken)?.[1];
  if (skipped !== undefined) return { skipped: Number(skipped) };
  const [, micros = "", part, digest = "", sessionId = ""] = KEY.exec(pageToken) ?? [];
  if (sessionId === "" || !sessionId.isWellFormed()) return undefined;
  return { micros: BigInt(micros), part: Number(part), digest, sessionId };
}
