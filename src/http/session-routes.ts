/** The sessions, in protobuf's own JSON mapping. */
import { create, type DescField, type DescMessage, ScalarType, toJson } from "@bufbuild/protobuf";
import { DurationSchema, FeatureSet_FieldPresence, TimestampSchema } from "@bufbuild/protobuf/wkt";
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { EventTypeSchema, WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  CreateSessionRequestSchema,
  DeleteSessionRequestSchema,
  GetSessionRequestSchema,
  ListSessionsRequestSchema,
  ListSessionsResponseSchema,
  QuestionSchema,
  RunFailureSchema,
  SessionFactsSchema,
  SessionOrder,
  SessionState,
  SessionSchema,
  type Session,
  type SessionWatchEvent,
  UpdateSessionRequestSchema,
  UpdateSessionStatusRequestSchema,
  type WatchSessionsRequest,
  WatchSessionsRequestSchema,
  HoldSessionRequestSchema,
  ForkSessionRequestSchema,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { checkThat, refuse } from "../contract/checks.ts";
import { flatMap } from "../base/pull.ts";
import { STATE_NAMES, STATES } from "../contract/session-states.ts";
import {
  answer,
  answerOrStream,
  ofSession,
  PROBLEMS,
  sendJson,
  timeText,
  type RouteParts,
} from "./answers.ts";
import { stateName, stateParameter } from "./event-routes.ts";
import {
  flagParameter,
  inCamelCase,
  labelsParameter,
  NO_QUERY,
  optionalCountParameter,
  SESSION_ID,
  keyHeader,
  textMember,
  textParameter,
  timestampParameter,
  seqParameter,
} from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf, streamContextOf } from "./plumbing/call-context.ts";
import { vary } from "./plumbing/cors.ts";
import { naming } from "./plumbing/problem.ts";
import { wantsEventStream } from "./plumbing/request-checks.ts";
import { sendEventStream, type SseFrame } from "./sse.ts";
import { keyOf } from "./message-routes.ts";

/** A field that every session has is present even when it is empty. */
const EMITTED = { alwaysEmitImplicit: true } as const;

function send(reply: FastifyReply, session: Session, status = 200): FastifyReply {
  return sendJson(reply, JSON.stringify(toJson(SessionSchema, session, EMITTED)), { status });
}

function sendNew(reply: FastifyReply, session: Session): FastifyReply {
  return send(reply.header("location", session.metadata?.href), session, 201);
}

const PAGE_MAX = 10_000;
const SIZE = { fallback: 100, max: 1_000 };

/** The types of fields in protobuf's JSON, which has numbers of 64 bits as text. */
const TYPES: ReadonlyMap<unknown, z.ZodType> = new Map<unknown, z.ZodType>([
  [ScalarType.STRING, z.string()],
  [ScalarType.INT32, z.int()],
  [ScalarType.INT64, z.string().meta({ format: "int64" })],
  [TimestampSchema, timeText],
  [DurationSchema, z.string()],
]);

/** What each session has, and the words and bounds that the contract itself does not give. */
const sessionSchema = messageSchema(SessionSchema, {
  metadata: z.strictObject({
    id: z.string(),
    createdAt: timeText,
    updatedAt: timeText,
    kind: z.literal("Session"),
    href: z.string(),
  }),
  hold: z.string().optional().meta({ description: "Why nothing of it is erased." }),
  state: z.enum(STATE_NAMES.map((name) => `SESSION_STATE_${name.toUpperCase()}`)).meta({
    description: "Where it stands: the first of these that holds.",
  }),
  stateSince: timeText
    .optional()
    .meta({ description: "Since when; not of an open run, and not before the first one." }),
  questions: z
    .array(
      messageSchema(QuestionSchema, {
        interrupt: z.string().meta({ description: "The interrupt of AG-UI, as JSON text." }),
      }),
    )
    .meta({
      description:
        "What its agent asks a person; only in a list with `state=waiting_for_person`. `POST /agui/sessions/{id}` takes the answers.",
    }),
  facts: messageSchema(SessionFactsSchema)
    .optional()
    .meta({ description: "Of its newest 1,000 runs, some seconds late; only with `facts`." }),
  failure: messageSchema(RunFailureSchema, { at: timeText })
    .optional()
    .meta({ description: "How its last ended run failed; only in a list with `failures`." }),
  forks: z
    .array(z.string())
    .meta({ description: "Its newest 100 forks; not in lists and streams." }),
}).meta({ id: "Session" });

/** A message in protobuf's JSON; `own` are schemas of fields, by their names in JSON. */
function messageSchema({ fields }: DescMessage, own: Readonly<Record<string, z.ZodType>> = {}) {
  const members = fields.map((field) => [field.jsonName, own[field.jsonName] ?? schemaOf(field)]);
  return z.strictObject(Object.fromEntries(members));
}

function schemaOf(field: DescField): z.ZodType {
  const type = TYPES.get(field.message ?? field.scalar);
  if (type === undefined) throw new TypeError(`${field.name} needs a schema in \`own\``);
  if (field.fieldKind === "list") return z.array(type);
  return field.presence === FeatureSet_FieldPresence.EXPLICIT ? type.optional() : type;
}

const sessionsSchema = z.strictObject({
  items: z.array(sessionSchema),
  metadata: z.strictObject({
    page: z.int(),
    size: z.int().meta({ description: "Sessions on this page." }),
    total: z.int().meta({ description: "At most 10,000." }),
    totalIsLowerBound: z.boolean().meta({ description: "More sessions may exist." }),
  }),
  nextPageToken: z.string().meta({ description: "For the next page; empty on the last page." }),
});

export function sessionRoutes(app: App, parts: RouteParts): void {
  const { handlers } = parts;
  app.get("/sessions", { schema: LIST }, async (request, reply) => {
    vary(reply, "Accept");
    if (request.method === "GET" && wantsEventStream(request.headers.accept)) {
      const asked = watchRequestOf(request.query);
      const context = streamContextOf(request);
      const events = handlers.watchSessions(asked, context);
      await sendEventStream(reply, context, framesOf(events, request.query.state_frames), parts);
      return reply;
    }
    const asked = create(ListSessionsRequestSchema, inCamelCase(request.query));
    const listed = await handlers.listSessions(asked, callContextOf(request));
    return sendJson(reply, JSON.stringify(toJson(ListSessionsResponseSchema, listed, EMITTED)));
  });
  app.post("/sessions", { schema: CREATE }, async (request, reply) => {
    const asked = create(CreateSessionRequestSchema, request.body);
    const made = naming(JSON_NAMES, handlers.createSession(asked, callContextOf(request)));
    return sendNew(reply, await made);
  });
  app.get("/sessions/:id", { schema: GET }, async (request, reply) => {
    const asked = create(GetSessionRequestSchema, request.params);
    return send(reply, await handlers.getSession(asked, callContextOf(request)));
  });
  app.patch("/sessions/:id", { schema: UPDATE }, async (request, reply) => {
    const asked = create(UpdateSessionRequestSchema, { ...request.body, id: request.params.id });
    return send(reply, await handlers.updateSession(asked, callContextOf(request)));
  });
  app.patch("/sessions/:id/status", { schema: REPORT }, async (request, reply) => {
    const given = { ...request.body, id: request.params.id };
    const asked = create(UpdateSessionStatusRequestSchema, given);
    const updated = handlers.updateSessionStatus(asked, callContextOf(request));
    return send(reply, await naming(JSON_NAMES, updated));
  });
  app.delete("/sessions/:id", { schema: DELETE }, async (request, reply) => {
    const asked = create(DeleteSessionRequestSchema, request.params);
    await handlers.deleteSession(asked, callContextOf(request));
    return reply.code(204).send();
  });
}

type ListQuery = z.output<typeof LIST.querystring>;

/** A stream has no pages, no order, and fewer filters. */
function watchRequestOf(query: ListQuery): WatchSessionsRequest {
  const {
    running,
    waiting,
    state,
    labels,
    project_id: projectId,
    state_frames: _,
    ...others
  } = query;
  const given = Object.entries(others).filter(([, value]) => !NOT_GIVEN.has(value));
  refuse(given.map(([field]) => checkThat(field, false, "must not be given for a stream")));
  const filters = { running, waiting, state, labels, projectId };
  return create(WatchSessionsRequestSchema, { ...filters, stateFrames: true });
}

const NOT_GIVEN: ReadonlySet<unknown> = new Set(["", 0, false, undefined]);

function framesOf(
  events: AsyncIterable<SessionWatchEvent>,
  isNamed: boolean,
): AsyncGenerator<SseFrame, void, undefined> {
  return flatMap(events, ({ type, session, resourceId, watchState }): readonly SseFrame[] => {
    if (watchState !== WatchState.UNSPECIFIED) {
      const state = stateName(watchState);
      const named = { event: "watch_state", data: JSON.stringify({ state }) };
      return [isNamed ? named : { comment: `watch_state ${state}` }];
    }
    const change = {
      type: EventTypeSchema.value[type]?.name,
      ...(session && { session: toJson(SessionSchema, session, EMITTED) }),
      resourceId,
    };
    return [{ data: JSON.stringify(change) }];
  });
}

const ORDERS = {
  newest: SessionOrder.UNSPECIFIED,
  activity: SessionOrder.ACTIVITY,
  waiting: SessionOrder.WAITING,
} as const;

const LIST = {
  operationId: "listSessions",
  summary: "Sessions",
  description:
    "With `Accept: text/event-stream` a stream of the sessions that change from now on, with the same filters: `data:` has `type` (EVENT_TYPE_CREATED, _UPDATED, _DELETED), `session` unless it was deleted, and `resourceId`. List again after each watch_state LIVE, and nothing is missed. A page that would pass 3 MiB comes without prompts, then without labels, annotations and capabilities, then with ids, phases, times and the first 128 characters of names alone. A page reads 10,000 sessions in their order and applies the filters to them, so it may have few sessions, or none, and a `nextPageToken`. Filters that leave at most 10,000 sessions by an index (all but `query`) find all of them at once.",
  tags: ["sessions"],
  querystring: z.strictObject({
    page: optionalCountParameter(
      "Which page, within the first 10,000 sessions; not for a stream.",
      { fallback: 1, max: PAGE_MAX },
    ),
    size: optionalCountParameter("Sessions on a page; not for a stream.", SIZE),
    page_token: textParameter(
      "`nextPageToken` of the page before, with the same filters and order; not for a stream.",
    ),
    running: flagParameter("Only sessions with an open run."),
    waiting: flagParameter("Only sessions with a message that waits for a turn."),
    query: textParameter(
      "Only sessions whose name or id contains this text, in any case; not for a stream.",
    ),
    phase: textParameter("Only sessions in this phase, as last reported; not for a stream."),
    state: z
      .enum(STATE_NAMES, { error: `must be one of ${STATE_NAMES.join(", ")}` })
      .optional()
      .transform((name) => (name === undefined ? SessionState.UNSPECIFIED : STATES[name]))
      .meta({
        description:
          "Only sessions that stand there. With waiting_for_person each has its `questions`.",
      }),
    agent_id: textParameter("Only sessions of this agent; not for a stream."),
    active_after: timestampParameter(
      "Only sessions whose newest row is from this time or later; not for a stream.",
    ),
    active_before: timestampParameter(
      "Only sessions whose newest row is from before this time; not for a stream.",
    ),
    facts: flagParameter("Also `facts` of each session; not for a stream."),
    failures: flagParameter(
      "Also `failure` of each session: the RUN_ERROR that ended its last run; not for a stream.",
    ),
    order_by: z
      .enum(["newest", "activity", "waiting"], { error: "must be newest, activity or waiting" })
      .default("newest")
      .transform((name) => ORDERS[name])
      .meta({
        description:
          "The newest first, or the newest activity first, or, with `waiting` or a state of waiting, the longest wait first; not for a stream.",
      }),
    labels: labelsParameter,
    project_id: textParameter("Only sessions of this project."),
    parent_session_id: textParameter(
      "Only sessions that this one has started, and its forks; not for a stream.",
    ),
    state_frames: stateParameter,
  }),
  response: { 200: answerOrStream("A page of sessions.", sessionsSchema), ...PROBLEMS },
};

/** Protobuf's JSON mapping spells fields in camelCase. */
const JSON_NAMES = Object.fromEntries(
  [CreateSessionRequestSchema, UpdateSessionStatusRequestSchema].flatMap(({ fields }) =>
    fields.map(({ name, jsonName }) => [name, jsonName]),
  ),
);

/** Those that may change later. */
const FIELDS = {
  name: textMember().meta({ description: "A name for people, at most 1,024 bytes." }),
  labels: textMember().optional().meta({ description: "Kept as it is, at most 64 KiB." }),
  annotations: textMember().optional().meta({ description: "Kept as it is, at most 64 KiB." }),
};

/** CreateSessionRequest in protobuf's own JSON mapping. */
const CREATE = {
  operationId: "createSession",
  summary: "Make a session",
  description: "The service chooses the id. `Location` has the path of the session.",
  tags: ["sessions"],
  querystring: NO_QUERY,
  body: z.strictObject(
    {
      ...FIELDS,
      prompt: textMember()
        .optional()
        .meta({ description: "The task of the agent, at most 1 MiB." }),
      llmModel: textMember().optional().meta({ description: "The model, at most 1,024 bytes." }),
      parentSessionId: textMember()
        .optional()
        .meta({ description: "The session that starts this one.", ...SESSION_ID }),
      agentId: textMember().optional().meta({ description: "The agent, at most 1,024 bytes." }),
      projectId: textMember().optional().meta({
        description: "The project, at most 1,024 bytes. A token of a project may name only that.",
      }),
    },
    { error: "must be an object with a name" },
  ),
  response: { 201: answer("The session.", sessionSchema), ...PROBLEMS },
};

const NOW = { 200: answer("The session as it is now.", sessionSchema), ...PROBLEMS };

const GET = {
  operationId: "getSession",
  summary: "One session",
  ...ofSession("sessions"),
  response: { 200: answer("The session.", sessionSchema), ...PROBLEMS },
};

const CHANGES = { ...FIELDS, name: FIELDS.name.optional() };
const UPDATE = {
  operationId: "updateSession",
  summary: "Change the name, labels or annotations of a session",
  description: "Absent fields stay unchanged.",
  ...ofSession("sessions"),
  body: z.strictObject(CHANGES, { error: "must be an object with name, labels or annotations" }),
  response: NOW,
};

/** UpdateSessionStatusRequest in protobuf's own JSON mapping; capabilities may be an object. */
const REPORT = {
  operationId: "updateSessionStatus",
  summary: "Report the phase, times or capabilities of a session",
  description: "For runners. Absent fields stay unchanged.",
  ...ofSession("sessions"),
  body: z.strictObject(
    {
      phase: textMember().optional().meta({
        description: "Pending, Creating, Running, Stopping, Stopped, Completed or Failed.",
      }),
      agentId: textMember().optional().meta({ description: "The agent, at most 1,024 bytes." }),
      startTime: timestampParameter("When the run of the agent began."),
      completionTime: timestampParameter("When the run ended."),
      capabilities: z
        .union([z.string(), z.looseObject({})], { error: "must be an object or a text" })
        .transform((able) => (typeof able === "object" ? JSON.stringify(able) : able))
        .optional()
        .meta({
          description:
            "AG-UI's AgentCapabilities, at most 64 KiB; an empty text removes them. An object is kept as its JSON, a text as it is.",
        }),
    },
    { error: "must be an object with phase, startTime, completionTime or capabilities" },
  ),
  response: NOW,
};

const DELETE = {
  operationId: "deleteSession",
  summary: "Delete a session",
  description: "From now on it is 404, its watches end, and nothing can be pushed to it.",
  ...ofSession("sessions"),
  response: { 204: z.undefined().meta({ description: "Deleted." }), ...PROBLEMS },
};

export function holdRoutes(app: App, { handlers }: RouteParts): void {
  app.put("/sessions/:id/hold", { schema: HOLD }, async (request, reply) => {
    const asked = create(HoldSessionRequestSchema, { ...request.params, ...request.body });
    return send(reply, await handlers.holdSession(asked, callContextOf(request)));
  });
  app.delete("/sessions/:id/hold", { schema: RELEASE }, async (request, reply) => {
    const asked = create(HoldSessionRequestSchema, { ...request.params, release: true });
    return send(reply, await handlers.holdSession(asked, callContextOf(request)));
  });
}

const HOLD = {
  operationId: "holdSession",
  summary: "Hold a session",
  description:
    "For admins. Neither retention nor a person erases it, and it is not deleted; pushes go on. Also for a deleted session.",
  ...ofSession("sessions"),
  body: z.strictObject(
    { reason: textMember().meta({ description: "Why, for people; at most 1,024 bytes." }) },
    { error: "must be an object with a reason" },
  ),
  response: NOW,
};

const RELEASE = {
  operationId: "releaseSession",
  summary: "End the hold of a session",
  ...ofSession("sessions"),
  response: NOW,
};

const FORK_NAMES = { new_id: "newId", at_seq: "atSeq", at_message_seq: "atMessageSeq" };

export function forkRoutes(app: App, { handlers }: RouteParts): void {
  app.post("/sessions/:id/fork", { schema: FORK }, async (request, reply) => {
    const idempotencyKey = keyOf(request.headers["idempotency-key"]);
    const given = { ...inCamelCase(request.body), sessionId: request.params.id, idempotencyKey };
    const asked = create(ForkSessionRequestSchema, given);
    const forked = naming(FORK_NAMES, handlers.forkSession(asked, callContextOf(request)));
    return sendNew(reply, await forked);
  });
}

const FORK = {
  operationId: "forkSession",
  summary: "Make a session with the history of this one up to a number",
  description:
    "Needs `atSeq` or `atMessageSeq`, and not both. With `Idempotency-Key` the same request again gives the same session. A caller who sees every session may give a `newId` instead; another request for a taken one is 409, SESSION_EXISTS.",
  ...ofSession("sessions"),
  headers: keyHeader(
    "UTF-8, at most 128 bytes. A repetition with the same key and number is answered with the fork of the first; with another number it is 409, KEY_REUSED.",
  ),
  body: z.strictObject(
    {
      newId: textMember()
        .min(1, { error: "must not be empty" })
        .optional()
        .meta({
          description: "The id of the new session, of a caller who sees every session.",
          ...SESSION_ID,
        }),
      atSeq: seqParameter(
        "The number of an event: the history ends with its row, and has the messages before it.",
      ),
      atMessageSeq: seqParameter(
        "The number of a message: the history ends with it, and has the events before it.",
      ),
    },
    { error: "must be an object with atSeq or atMessageSeq" },
  ),
  response: { 201: answer("The new session.", sessionSchema), ...PROBLEMS },
};
