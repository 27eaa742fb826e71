/**
 * The events of a session, as pages and live, and the two watches of the contract as server-sent
 * events. An event's id is its number. Last-Event-ID wins over `after_seq`, because an EventSource
 * requests the same URL each time.
 *
 *   messages   from the beginning, or after the cursor
 *   events     from now on, or after the cursor: each event as it was pushed, byte for byte except
 *              line breaks between tokens; also events that no version of AG-UI knows; or the rows
 *
 * Frames of the watch that are not rows have no id: they are comments, or with `state_frames`
 * events named `watch_state`. The first one is sent at once, unless the watch is refused.
 */
import { create } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { WatchState, WatchStateSchema } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  ListSessionEventsRequestSchema,
  type SessionEvent,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import {
  type SessionMessage,
  WatchSessionMessagesRequestSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import type { EventHistory } from "../handlers/pages.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { flatMap, only } from "../base/pull.ts";
import type { CallContext } from "../contract/context.ts";
import {
  answer,
  eventItem,
  eventItemSchema,
  eventType,
  jsonArray,
  jsonObject,
  messageItem,
  PROBLEMS,
  sendJson,
  seqNumber,
  type RouteParts,
} from "./answers.ts";
import {
  countParameter,
  flagParameter,
  inCamelCase,
  listParameter,
  seqHeader,
  seqParameter,
  sessionParams,
  textParameter,
  timeParameter,
} from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf, streamContextOf } from "./plumbing/call-context.ts";
import { withNames } from "../contract/checks.ts";
import { sendEventStream, type SseFrame } from "./sse.ts";

interface LiveQuery {
  readonly after_seq?: bigint | undefined;
  readonly state_frames: boolean;
}

/** Read here: the framework would name them in lower case in errors. */
export const liveHeaders = z.looseObject({
  "last-event-id": z.string().optional().meta({
    description: "Of a stream: only what has a higher number. The id that was seen last.",
  }),
});

export const stateParameter = flagParameter(
  "A stream tells where it stands by events named watch_state, and not by comments.",
);

/** The fragment index of a merged row, for a caller that restores its events itself. */
const fragmentsParameter = flagParameter("Merged rows come with `fragments`.");

/** The query parameters of a watch; the messages' route, which also answers JSON, has more. */
export const liveParameters = {
  after_seq: seqParameter("Only what has a higher number. A stream: Last-Event-ID wins over it."),
  state_frames: stateParameter,
};

const LAST_EVENT_ID = "Last-Event-ID";

export function eventRoutes(app: App, parts: RouteParts): void {
  app.get("/sessions/:id/events", { schema: EVENTS }, async (request, reply) => {
    const { query } = request;
    const { id: sessionId } = request.params;
    const { expand, fragments } = query;
    const cursor = cursorOf(request, query);
    const context = streamContextOf(request);
    const afterSeq = cursor.seq ?? (await headOf(parts, sessionId, context));
    const asked = { sessionId, afterSeq, expand, stateFrames: true };
    const rows = parts.handlers.watchSessionEvents(
      create(WatchSessionEventsRequestSchema, asked),
      context,
    );
    const textOf = (row: SessionEvent): string =>
      expand ? row.payload : eventItem(row, { fragments });
    const frames = framesOf(rows, textOf, {
      named: query.state_frames,
      // Without it, a client that loses the stream before its first event would skip some.
      place: cursor.seq === undefined ? afterSeq : undefined,
      idOf: ({ seq, eventCount }) => (expand ? seq : seq + BigInt(eventCount) - 1n),
    });
    await sendEventStream(reply, context, cursor.naming(frames), parts);
  });
  app.get("/sessions/:id/events/history", { schema: HISTORY }, async (request, reply) => {
    const { query } = request;
    const { start_time: startMicros, end_time: endMicros } = query;
    const asked = create(ListSessionEventsRequestSchema, {
      ...inCamelCase(query),
      sessionId: request.params.id,
      pageSize: query.limit,
      eventTypes: query.event_type,
    });
    const history = await parts.handlers.readEventHistory(
      { page: asked, span: { startMicros, endMicros }, recorded: query.recorded },
      callContextOf(request),
    );
    const hasTime = startMicros !== undefined || endMicros !== undefined;
    const isFiltered = query.event_type.length > 0 || query.run_id !== "" || hasTime;
    const { descending, fragments } = query;
    return sendJson(reply, historyJson(history, { isFiltered, descending, fragments }));
  });
}

const EVENTS = {
  operationId: "followEvents",
  summary: "Events, live",
  description:
    "Server-sent events: `data:` an AG-UI event as it was before compression, `id:` its seq; with `expand=false` an item of a page, `id:` its last number. Begins at now, or behind `Last-Event-ID` or else `after_seq`, and does not end by itself. An error after the beginning is an event named `error`, its data a problem.",
  tags: ["events"],
  params: sessionParams,
  headers: liveHeaders,
  querystring: z.strictObject({
    ...liveParameters,
    expand: flagParameter("Each event as it was before compression; false: rows.", true),
    fragments: fragmentsParameter,
  }),
  response: { 200: answer("A stream.", z.string(), "text/event-stream"), ...PROBLEMS },
};

export function followMessages(
  parts: RouteParts,
  reply: FastifyReply,
  { sessionId, query }: { readonly sessionId: string; readonly query: LiveQuery },
): Promise<void> {
  const { request } = reply;
  const cursor = cursorOf(request, query);
  const context = streamContextOf(request);
  const asked = { sessionId, afterSeq: cursor.seq ?? 0n, stateFrames: true };
  const rows = parts.handlers.watchSessionMessages(
    create(WatchSessionMessagesRequestSchema, asked),
    context,
  );
  const frames = framesOf(rows, (row) => messageItem(row), {
    named: query.state_frames,
    place: undefined,
  });
  return sendEventStream(reply, context, cursor.naming(frames), parts);
}

/** The number that "now" means; 0 for a session that does not exist. */
async function headOf(
  { handlers }: RouteParts,
  sessionId: string,
  context: CallContext,
): Promise<bigint> {
  const newest = { sessionId, descending: true, pageSize: 1 };
  try {
    const request = create(ListSessionEventsRequestSchema, newest);
    return (await handlers.listSessionEvents(request, context)).nextAfterSeq;
  } catch (error) {
    if (error instanceof ServiceError && error.reason === "SESSION_NOT_FOUND") return 0n;
    throw error;
  }
}

interface FrameForm<M> {
  readonly named: boolean;
  readonly place: bigint | undefined;
  /** The cursor behind the row. */
  readonly idOf?: (row: M) => bigint;
}

function framesOf<M extends SessionMessage | SessionEvent>(
  rows: AsyncIterable<M>,
  textOf: (row: M) => string,
  { named, place, idOf = ({ seq }) => seq }: FrameForm<M>,
): AsyncGenerator<SseFrame, void, undefined> {
  let isFirst = true;
  return flatMap(rows, (row) => {
    const frame =
      row.watchState === WatchState.UNSPECIFIED
        ? { id: String(idOf(row)), data: textOf(row) }
        : stateFrame(row, named);
    const frames = isFirst && place !== undefined ? [{ id: String(place) }, frame] : [frame];
    isFirst = false;
    return frames;
  });
}

function stateFrame(
  { watchState, seq }: Pick<SessionMessage, "watchState" | "seq">,
  named: boolean,
): SseFrame {
  const state = stateName(watchState);
  if (!named) return { comment: `watch_state ${state} ${seq}` };
  return { event: "watch_state", data: `{"state":"${state}","seq":${seq}}` };
}

/** The name of the contract's enum, without the common prefix of its values. */
export function stateName(watchState: WatchState): string {
  return WatchStateSchema.value[watchState]?.localName ?? "";
}

/** `naming` makes errors name the cursor as the caller knows it. */
function cursorOf(request: FastifyRequest, query: LiveQuery) {
  const header = request.headers["last-event-id"];
  if (header === undefined || header === "")
    return { seq: query.after_seq, naming: (frames: AsyncGenerator<SseFrame>) => frames };
  return { seq: seqHeader(LAST_EVENT_ID, header), naming: namingTheHeader };
}

function namingTheHeader(frames: AsyncGenerator<SseFrame>): AsyncGenerator<SseFrame> {
  return flatMap(frames, only, (error) => {
    if (!(error instanceof ServiceError) || error.reason !== "CURSOR_BEYOND_HEAD") throw error;
    throw withNames(error, (text) => text.replace("after_seq", LAST_EVENT_ID));
  });
}

/** Older clients expect these fields of a list. Each list starts at its cursor, so `page` is 1. */
function historyJson(
  { page, total, recordedMicros }: EventHistory,
  query: Readonly<Record<"isFiltered" | "descending" | "fragments", boolean>>,
): string {
  const { isFiltered, descending, fragments } = query;
  return jsonObject({
    kind: '"SessionEventList"',
    page: "1",
    size: String(page.items.length),
    total: isFiltered ? undefined : total.toString(),
    items: jsonArray(
      page.items.map((item, at) =>
        eventItem(item, { fragments, recordedMicros: recordedMicros[at] }),
      ),
    ),
    next_after_seq: page.nextAfterSeq.toString(),
    next_before_seq: descending ? page.nextBeforeSeq.toString() : undefined,
    has_more: String(page.hasMore),
  });
}

/** Of a page of events. */
const LIMIT = { fallback: 100, max: 1_000 };

const HISTORY = {
  operationId: "listEvents",
  summary: "Events, in order",
  description:
    "To read on, ask again with `after_seq` at `next_after_seq` while `has_more` is true; with `descending`, with `before_seq` at `next_before_seq`. A page may have fewer items than `limit`, or none, and more may follow.",
  tags: ["events"],
  params: sessionParams,
  querystring: z
    .strictObject({
      after_seq: seqParameter("Only events above this number."),
      before_seq: seqParameter("Only events below this number; 0: all. Not with `after_seq`."),
      descending: flagParameter("The newest first."),
      limit: countParameter("The most rows of a page.", LIMIT),
      event_type: listParameter("Only of this type; may be repeated.", eventType),
      run_id: textParameter("Only of this run."),
      start_time: timeParameter("Only what went on at this time or later."),
      end_time: timeParameter("Only what went on at this time or earlier."),
      expand: flagParameter("Each event as it was before compression."),
      fragments: fragmentsParameter,
      recorded: flagParameter("Rows come with `recorded_at`; not with `expand`."),
    })
    .refine(
      ({ start_time: start, end_time: end }) =>
        start === undefined || end === undefined || start <= end,
      { path: ["end_time"], error: "must not be before start_time" },
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
        next_before_seq: seqNumber.optional().meta({ description: "Only with `descending`." }),
        has_more: z.boolean(),
      }),
    ),
    ...PROBLEMS,
  },
};
