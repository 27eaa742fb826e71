/**
 * The two watches of the contract as server-sent events. An event's id is its number, so the
 * Last-Event-ID of a returning client is its cursor. That cursor wins over `after_seq`, because an
 * EventSource requests the same URL each time.
 *
 *   messages   from the beginning, or after the cursor
 *   events     from now on, or after the cursor: each event as it was pushed, byte for byte except
 *              line breaks between tokens; also events that no version of AG-UI knows
 *
 * Frames of the watch that are not rows have no id: they are comments, or with `state_frames`
 * events named `watch_state`. The first one is sent at once, unless the watch is refused.
 */
import { create } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { WatchState } from "../../gen/ambient/v1/common_pb.ts";
import {
  ListSessionEventsRequestSchema,
  type SessionEvent,
  WatchSessionEventsRequestSchema,
} from "../../gen/ambient/v1/events_pb.ts";
import {
  type SessionMessage,
  WatchSessionMessagesRequestSchema,
} from "../../gen/ambient/v1/messages_pb.ts";
import type { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import { answer, PROBLEMS } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { streamContextOf } from "./plumbing/call-context.ts";
import { messageItem } from "./items.ts";
import { flagParameter, seqParameter, sessionParams } from "./parameters.ts";
import { type EventStreamOptions, sendEventStream } from "./sse.ts";
import type { SseFrame } from "./sse-frames.ts";

export interface LiveParts extends EventStreamOptions {
  readonly handlers: Pick<
    Handlers<typeof SessionService>,
    "watchSessionMessages" | "watchSessionEvents" | "listSessionEvents"
  >;
}

export interface LiveQuery {
  readonly after_seq?: bigint | undefined;
  readonly state_frames: boolean;
}

/**
 * The headers that a watching client may send; read here and not by the framework, which would name
 * them in lower case in errors.
 */
export const liveHeaders = z.looseObject({
  "last-event-id": z.string().optional().meta({
    description: "Of a stream: only what has a higher number. The id that was seen last.",
  }),
});

/** The query parameters of a watch; the messages' route, which also answers JSON, has more. */
export const liveParameters = {
  after_seq: seqParameter("Only what has a higher number. A stream: Last-Event-ID wins over it."),
  state_frames: flagParameter(
    "A stream tells where it stands by events named watch_state, and not by comments.",
  ),
};

const LAST_EVENT_ID = "Last-Event-ID";
const lastEventId = seqParameter("");

export function liveRoutes(parts: LiveParts): (app: App) => void {
  return (app) => {
    app.get("/sessions/:id/events", { schema: EVENTS }, (request, reply) =>
      followEvents(parts, { request, reply, sessionId: request.params.id, query: request.query }),
    );
  };
}

const EVENTS = {
  operationId: "followEvents",
  summary: "Events, live",
  description:
    "Server-sent events: `data:` an AG-UI event as it was before compression, `id:` its seq. Begins at now, or behind `Last-Event-ID` or else `after_seq`, and does not end by itself. An error after the beginning is an event named `error`, its data a problem.",
  tags: ["events"],
  params: sessionParams,
  headers: liveHeaders,
  querystring: z.strictObject(liveParameters),
  response: {
    200: answer("A stream.", z.string(), "text/event-stream"),
    ...PROBLEMS,
  },
};

interface Following {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly sessionId: string;
  readonly query: LiveQuery;
}

export function followMessages(parts: LiveParts, following: Following): Promise<void> {
  const { request, reply, sessionId, query } = following;
  const cursor = cursorOf(request, query);
  const context = streamContextOf(request);
  const rows = parts.handlers.watchSessionMessages(
    create(WatchSessionMessagesRequestSchema, {
      sessionId,
      afterSeq: cursor.seq ?? 0n,
      stateFrames: true,
    }),
    context,
  );
  const frames = framesOf(rows, messageItem, { named: query.state_frames, place: undefined });
  return sendEventStream(reply, context, cursor.naming(frames), parts);
}

async function followEvents(parts: LiveParts, following: Following): Promise<void> {
  const { request, reply, sessionId, query } = following;
  const cursor = cursorOf(request, query);
  const context = streamContextOf(request);
  const afterSeq = cursor.seq ?? (await headOf(parts, sessionId, context));
  const rows = parts.handlers.watchSessionEvents(
    create(WatchSessionEventsRequestSchema, {
      sessionId,
      afterSeq,
      expand: true,
      stateFrames: true,
    }),
    context,
  );
  const frames = framesOf(rows, ({ payload }) => payload, {
    named: query.state_frames,
    // Without this, a client that loses the stream before its first event would start at a later
    // "now".
    place: cursor.seq === undefined ? afterSeq : undefined,
  });
  await sendEventStream(reply, context, cursor.naming(frames), parts);
}

/**
 * The number that "now" means; 0 for a session that does not exist yet, which the watch waits for
 * or refuses.
 */
async function headOf(
  { handlers }: LiveParts,
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

async function* framesOf<M extends SessionMessage | SessionEvent>(
  rows: AsyncIterable<M>,
  textOf: (row: M) => string,
  { named, place }: { readonly named: boolean; readonly place: bigint | undefined },
): AsyncGenerator<SseFrame, void, undefined> {
  let isFirst = true;
  for await (const row of rows) {
    if (isFirst && place !== undefined) yield { id: String(place) };
    isFirst = false;
    if (row.watchState === WatchState.UNSPECIFIED) {
      yield { id: String(row.seq), data: textOf(row) };
    } else {
      yield stateFrame(row, named);
    }
  }
}

function stateFrame(
  { watchState, seq }: Pick<SessionMessage, "watchState" | "seq">,
  named: boolean,
): SseFrame {
  const state = STATE_NAMES[watchState] ?? "";
  if (!named) return { comment: `watch_state ${state} ${seq}` };
  return { event: "watch_state", data: `{"state":"${state}","seq":${seq}}` };
}

/** The names of the contract's enum, without the common prefix of its values. */
const STATE_NAMES: Readonly<Record<number, string>> = {
  [WatchState.CATCHING_UP]: "CATCHING_UP",
  [WatchState.LIVE]: "LIVE",
  [WatchState.DEGRADED]: "DEGRADED",
};

interface Cursor {
  /** Undefined: the caller gave no cursor. */
  readonly seq: bigint | undefined;
  /** Makes errors name the cursor as the caller knows it. */
  naming(frames: AsyncGenerator<SseFrame>): AsyncGenerator<SseFrame>;
}

function cursorOf(request: FastifyRequest, query: LiveQuery): Cursor {
  const said = request.headers["last-event-id"];
  if (said === undefined || said === "")
    return { seq: query.after_seq, naming: (frames) => frames };
  const seq = lastEventId.safeParse(said);
  if (!seq.success) {
    const why = seq.error.issues[0]?.message ?? "";
    throw invalidArgument([{ field: LAST_EVENT_ID, description: `${LAST_EVENT_ID} ${why}` }]);
  }
  return { seq: seq.data, naming: namingTheHeader };
}

async function* namingTheHeader(frames: AsyncGenerator<SseFrame>): AsyncGenerator<SseFrame> {
  try {
    yield* frames;
  } catch (error) {
    if (!(error instanceof ServiceError) || error.reason !== "CURSOR_BEYOND_HEAD") throw error;
    const { code, reason, message, violations } = error;
    throw new ServiceError(code, reason, message.replace("after_seq", LAST_EVENT_ID), {
      violations: violations.map((violation) => ({ ...violation, field: LAST_EVENT_ID })),
      cause: error,
    });
  }
}
