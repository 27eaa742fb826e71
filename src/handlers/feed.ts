/**
 * The two feeds, and the watch of sessions. A cursor names the feed, the server process whose clock
 * made it, and the position: time, session and number of the last row, so a feed can continue inside
 * the rows of one time.
 */
import { create } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { WatchState, EventType } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  type FeedEvent,
  FeedEventSchema,
  type FeedMessage,
  FeedMessageSchema,
  type WatchEventsRequest,
  type WatchMessagesRequest,
} from "@session-ledger/proto/ambient/v1/feed_pb";
import {
  SessionWatchEventSchema,
  type SessionService,
  type SessionWatchEvent,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Audit } from "../auth/authorizer.ts";
import { serverBusy } from "../base/budget.ts";
import { invalidArgument } from "@session-ledger/base/errors";
import { isSessionId } from "@session-ledger/base/ids";
import { Pull, flatMap } from "../base/pull.ts";
import {
  type Check,
  checkEventTypeFilter,
  checkMessageTypeFilter,
  checkTextBytes,
  checkThat,
  violationsOf,
  refuse,
} from "../contract/checks.ts";
import { type CallContext, type Handlers, reserveFor } from "../contract/context.ts";
import { rowBytesOf, toSessionEvent, toSessionMessage } from "../contract/rows-to-wire.ts";
import { stateNameOf } from "../contract/session-states.ts";
import { checkTimestamp, microsOf, timestampOf } from "../contract/times.ts";
import type { FeedDelivery, Feeds } from "../live/feeds.ts";
import type { FeedPosition, FeedRow } from "../store/feed.ts";
import type { StreamName } from "../store/rows.ts";
import { WATCH_STATE } from "./watch.ts";
import type { SessionChanged } from "../live/session-watch.ts";
import { belongingChecks, toSession } from "./sessions.ts";

const PROJECT_BYTES_MAX = 1_024;
const CURSOR_CHARS_MAX = 512;
/** The first word of a cursor: the form and the feed. */
const CURSOR_FORM = { events: "e1", messages: "m1" } as const;

interface FeedCursor {
  readonly server: string;
  readonly position: FeedPosition;
}

interface FrameFields {
  readonly cursor: string;
  readonly projectId: string;
  readonly recordedAt: Timestamp | undefined;
  readonly watchState: WatchState;
}

interface FeedCall<S extends StreamName, M> {
  readonly stream: S;
  readonly request: WatchEventsRequest | WatchMessagesRequest;
  readonly context: CallContext;
  readonly checkTypes: (eventTypes: readonly string[]) => Check;
  readonly toWire: (row: FeedRow<S>["row"] | undefined, around: FrameFields) => M;
}

export function createFeedHandlers(
  feeds: Feeds,
  audit: Audit,
): Pick<Handlers<typeof SessionService>, "watchEvents" | "watchMessages" | "watchSessions"> {
  return {
    watchEvents: (request, context) =>
      feed<"events", FeedEvent>({
        stream: "events",
        request,
        context,
        checkTypes: checkEventTypeFilter,
        toWire: (row, around) =>
          create(FeedEventSchema, { ...around, ...(row && { event: toSessionEvent(row) }) }),
      }),
    watchMessages: (request, context) =>
      feed<"messages", FeedMessage>({
        stream: "messages",
        request,
        context,
        checkTypes: checkMessageTypeFilter,
        toWire: (row, around) =>
          create(FeedMessageSchema, { ...around, ...(row && { message: toSessionMessage(row) }) }),
      }),
    watchSessions(request, context) {
      refuse(belongingChecks(request));
      const { principal: scope, memory, signal } = context;
      const acquire = reserveFor(context);
      const filter = { ...request, state: stateNameOf(request.state) };
      const deliveries = feeds.watchSessions({ scope, filter, signal, acquire });
      return flatMap(deliveries, function* (delivery) {
        if (delivery.kind === "state") {
          const watchState = WATCH_STATE[delivery.state];
          if (request.stateFrames) yield create(SessionWatchEventSchema, { watchState });
          return;
        }
        const { changes } = delivery;
        if (memory?.resize("rows", changeBytesOf(changes)) === false) throw serverBusy();
        for (const one of changes) yield toEvent(one);
        memory?.resize("rows", 0);
      });
    },
  };

  function feed<S extends StreamName, M>(call: FeedCall<S, M>): Pull<FeedDelivery<S>, M> {
    const { stream, request, context } = call;
    const { principal, signal } = context;
    const projectId = principal.projectId ?? request.projectId;
    const follow = async (): Promise<AsyncIterable<FeedDelivery<S>>> => {
      const { position, server } = checked(call);
      return feeds.follow({
        stream,
        from: position,
        server,
        projectId: projectId === "" ? undefined : projectId,
        eventTypes: request.eventTypes,
        snapshotOnly: request.snapshotOnly,
        signal,
        acquire: reserveFor(context),
      });
    };
    const act = { principal, action: "feed.read", sessionId: undefined } as const;
    let isAudited = false;
    return new Pull(follow, (delivery) => {
      // The first delivery shows that the feed has a lease.
      if (!isAudited) audit.done(act, { stream, projectId });
      isAudited = true;
      return framesOf(call, delivery);
    });
  }
}

function* framesOf<S extends StreamName, M>(
  { stream, context: { memory }, toWire }: FeedCall<S, M>,
  delivery: FeedDelivery<S>,
): Generator<M> {
  if (delivery.kind === "state") {
    yield toWire(undefined, {
      cursor: cursorText(stream, delivery),
      projectId: "",
      recordedAt: undefined,
      watchState: WATCH_STATE[delivery.state],
    });
    return;
  }
  const { rows } = delivery;
  if (memory?.resize("rows", rowBytesOf(rows.map(({ row }) => row))) === false) throw serverBusy();
  for (const { row, projectId: owner = "", recordedAtMicros: atMicros } of rows) {
    const at = { atMicros, sessionId: row.sessionId, seq: row.seq };
    yield toWire(row, {
      cursor: cursorText(stream, { server: delivery.server, position: at }),
      projectId: owner,
      recordedAt: timestampOf(atMicros),
      watchState: WatchState.UNSPECIFIED,
    });
  }
  memory?.resize("rows", 0);
}

function checked({ stream, request, checkTypes }: FeedCall<StreamName, unknown>): FeedCursor {
  const { cursor, startTime, projectId, eventTypes } = request;
  const place = cursor === "" ? beginningAt(startTime) : cursorIn(stream, cursor);
  const isOneStart = cursor === "" || startTime === undefined;
  const violations = violationsOf([
    checkThat("cursor", place !== undefined, `must be one of an earlier feed of ${stream}`),
    checkThat("start_time", isOneStart, "must be absent with a cursor"),
    startTime && checkTimestamp("start_time", startTime),
    checkTextBytes("project_id", projectId, PROJECT_BYTES_MAX),
    checkTypes(eventTypes),
  ]);
  if (place === undefined || violations.length > 0) throw invalidArgument(violations);
  return place;
}

function beginningAt(startTime: Timestamp | undefined): FeedCursor {
  const micros = startTime === undefined ? 0n : microsOf(startTime);
  return { server: "", position: { atMicros: micros, sessionId: "", seq: 0n } };
}

function cursorText(stream: StreamName, { server, position }: FeedCursor): string {
  const { atMicros, sessionId, seq } = position;
  const words = [CURSOR_FORM[stream], server, atMicros, seq, sessionId];
  return Buffer.from(words.join(" ")).toString("base64url");
}

function cursorIn(stream: StreamName, cursor: string): FeedCursor | undefined {
  if (cursor.length > CURSOR_CHARS_MAX) return undefined;
  const words = Buffer.from(cursor, "base64url").toString().split(" ");
  const [form, server = "", at = "", seq = "", sessionId = ""] = words;
  if (form !== CURSOR_FORM[stream] || words.length !== 5) return undefined;
  if (!/^[\d.]{0,32}$/.test(server) || !/^-?\d{1,18}$/.test(at) || !/^\d{1,18}$/.test(seq)) {
    return undefined;
  }
  const atMicros = BigInt(at);
  if (checkTimestamp("cursor", timestampOf(atMicros)) !== undefined) return undefined;
  if (sessionId !== "" && !isSessionId(sessionId)) return undefined;
  return { server, position: { atMicros, sessionId, seq: BigInt(seq) } };
}

const TYPES = {
  created: EventType.CREATED,
  updated: EventType.UPDATED,
  deleted: EventType.DELETED,
} as const satisfies Record<SessionChanged["change"], EventType>;

function toEvent({ record, change }: SessionChanged): SessionWatchEvent {
  const session = change === "deleted" ? {} : { session: toSession(record) };
  const type = TYPES[change];
  return create(SessionWatchEventSchema, { type, resourceId: record.id, ...session });
}

/** Its numbers, its times and its short texts. */
const SESSION_BYTES = 2_048;

function changeBytesOf(changes: readonly SessionChanged[]): number {
  return changes.reduce((bytes, { record }) => {
    const { name, prompt, labels, annotations, capabilities } = record;
    const texts = [name, prompt, labels, annotations, capabilities].map(
      (text) => text?.length ?? 0,
    );
    return texts.reduce((sum, chars) => sum + 2 * chars, bytes + SESSION_BYTES);
  }, 0);
}
