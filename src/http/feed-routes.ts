/**
 * The two feeds as server-sent events. An event's id is its cursor. Last-Event-ID wins over
 * `cursor`, because an EventSource requests the same URL each time. A frame without a row is a
 * comment and an id.
 */
import { create } from "@bufbuild/protobuf";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import {
  type FeedEvent,
  type FeedMessage,
  WatchEventsRequestSchema,
  WatchMessagesRequestSchema,
} from "@session-ledger/proto/ambient/v1/feed_pb";
import { flatMap } from "../base/pull.ts";
import {
  answer,
  eventItem,
  eventType,
  feedItem,
  messageItem,
  PROBLEMS,
  type RouteParts,
} from "./answers.ts";
import { stateName } from "./event-routes.ts";
import {
  flagParameter,
  inCamelCase,
  listParameter,
  textParameter,
  timestampParameter,
} from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { streamContextOf } from "./plumbing/call-context.ts";
import { sendEventStream, type SseFrame } from "./sse.ts";

export function feedRoutes(app: App, parts: RouteParts): void {
  app.get("/events", { schema: EVENTS }, (request, reply) => {
    const context = streamContextOf(request);
    const asked = create(WatchEventsRequestSchema, requestOf(request, request.query));
    const frames = framesOf(
      parts.handlers.watchEvents(asked, context),
      ({ event }) => event && eventItem(event),
    );
    return sendEventStream(reply, context, frames, parts);
  });
  app.get("/messages", { schema: MESSAGES }, (request, reply) => {
    const context = streamContextOf(request);
    const asked = create(WatchMessagesRequestSchema, requestOf(request, request.query));
    const frames = framesOf(
      parts.handlers.watchMessages(asked, context),
      ({ message }) => message && messageItem(message),
    );
    return sendEventStream(reply, context, frames, parts);
  });
}

function requestOf(request: FastifyRequest, query: z.output<typeof EVENTS.querystring>) {
  const { event_type: eventTypes, ...rest } = query;
  const given = { ...inCamelCase(rest), eventTypes };
  const header = request.headers["last-event-id"];
  if (typeof header !== "string" || header === "") return given;
  // A returning client repeats the whole URL, also the time at which its first request began.
  return { ...given, cursor: header, startTime: undefined };
}

function framesOf<M extends FeedEvent | FeedMessage>(
  frames: AsyncIterable<M>,
  itemOf: (frame: M) => string | undefined,
): AsyncGenerator<SseFrame, void, undefined> {
  return flatMap(frames, (frame): readonly SseFrame[] => {
    const { cursor: id, watchState } = frame;
    const item = itemOf(frame);
    if (item !== undefined) return [{ id, data: feedItem(item, frame) }];
    return [{ comment: `watch_state ${stateName(watchState)}` }, { id }];
  });
}

const feedSchema = (operationId: string, rows: string, type?: z.ZodType<string>) => ({
  operationId,
  summary: `The ${rows} of all sessions`,
  description:
    "Server-sent events: `id:` is the cursor to continue from, `data:` the row with `project_id` and `recorded_at`. Begins with the oldest row, or behind `Last-Event-ID` or else `cursor`. Rows may come again after a break. For the roles admin and service.",
  tags: ["feeds"],
  headers: z.looseObject({
    "last-event-id": z.string().optional().meta({
      description: "Continue after this cursor, the id that was seen last.",
    }),
  }),
  querystring: z.strictObject({
    cursor: textParameter("Continue after this cursor. Last-Event-ID wins over it."),
    start_time: timestampParameter("Without a cursor: begin with what was recorded at this time."),
    project_id: textParameter("Only sessions of this project."),
    snapshot_only: flagParameter("End with the rows that are committed at the time of the call."),
    event_type: listParameter("Only of this type; may be repeated.", type),
  }),
  response: { 200: answer("A stream.", z.string(), "text/event-stream"), ...PROBLEMS },
});

const EVENTS = feedSchema("watchEvents", "events", eventType);
const MESSAGES = feedSchema("watchMessages", "messages");
