/** The events of a session, a page at a time. */
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import { ListSessionEventsRequestSchema } from "../../gen/ambient/v1/events_pb.ts";
import type { EventHistory, HistoryHandlers } from "../api/pages.ts";
import { answer, PROBLEMS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { eventItem, eventItemSchema, jsonArray, jsonObject, seqNumber } from "./items.ts";
import {
  countParameter,
  flagParameter,
  listParameter,
  seqParameter,
  sessionParams,
  textParameter,
  timeParameter,
} from "./parameters.ts";

export interface HistoryRouteParts {
  readonly handlers: HistoryHandlers;
}

const LIMIT = { fallback: 100, max: 1_000 };

export function historyRoutes({ handlers }: HistoryRouteParts): (app: App) => void {
  return (app) => {
    app.get("/sessions/:id/events/history", { schema: HISTORY }, async (request, reply) => {
      const { query } = request;
      const asked = create(ListSessionEventsRequestSchema, {
        sessionId: request.params.id,
        afterSeq: query.after_seq ?? 0n,
        pageSize: query.limit,
        eventTypes: [...query.event_type],
        runId: query.run_id,
        expand: query.expand,
      });
      const { start_time: startMicros, end_time: endMicros } = query;
      const history = await handlers.readEventHistory(
        { page: asked, span: { startMicros, endMicros } },
        callContextOf(request),
      );
      const isFiltered =
        query.event_type.length > 0 ||
        query.run_id !== "" ||
        startMicros !== undefined ||
        endMicros !== undefined;
      return sendJson(reply, historyJson(history, { isFiltered }));
    });
  };
}

/**
 * The fields around the items are those that older clients expect of a list. Each list starts a
 * page of its own at its cursor, so `page` is 1, and `size` is the number of items.
 */
function historyJson(
  { page, total }: EventHistory,
  { isFiltered }: { readonly isFiltered: boolean },
): string {
  return jsonObject({
    kind: '"SessionEventList"',
    page: "1",
    size: String(page.items.length),
    total: isFiltered ? undefined : total.toString(),
    items: jsonArray(page.items.map(eventItem)),
    next_after_seq: page.nextAfterSeq.toString(),
    has_more: String(page.hasMore),
  });
}

const HISTORY = {
  operationId: "listEvents",
  summary: "Events, in order",
  description:
    "To read on, ask again with `after_seq` at `next_after_seq` while `has_more` is true. A page may have fewer items than `limit`, or none, and more may follow.",
  tags: ["events"],
  params: sessionParams,
  querystring: z
    .strictObject({
      after_seq: seqParameter("Only events above this number."),
      limit: countParameter("At most so many.", LIMIT),
      event_type: listParameter("Only of this type; may be repeated."),
      run_id: textParameter("Only of this run."),
      start_time: timeParameter("Only what went on at this time or later."),
      end_time: timeParameter("Only what went on at this time or earlier."),
      expand: flagParameter("Each event as it was before compression."),
    })
    .refine(
      ({ start_time: start, end_time: end }) =>
        start === undefined || end === undefined || start <= end,
      {
        path: ["end_time"],
        error: "must not be before start_time",
      },
    ),
  response: {
    200: answer(
      "A page of events.",
      z.strictObject({
        kind: z.literal("SessionEventList"),
        page: z.literal(1),
        size: z.int().meta({ description: "Items on this page." }),
        total: seqNumber
          .optional()
          .meta({ description: "Raw events of the session; not with a filter." }),
        items: z.array(eventItemSchema),
        next_after_seq: seqNumber,
        has_more: z.boolean(),
      }),
    ),
    ...PROBLEMS,
  },
};
