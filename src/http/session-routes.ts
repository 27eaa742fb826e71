/** The sessions, in protobuf's own JSON mapping; their runs, and their transcripts. */
import { create, toJson } from "@bufbuild/protobuf";
import { z } from "zod";
import {
  CreateSessionRequestSchema,
  DeleteSessionRequestSchema,
  GetSessionRequestSchema,
  ListSessionsRequestSchema,
  ListSessionsResponseSchema,
  SessionSchema,
  type SessionService,
  UpdateSessionRequestSchema,
} from "../../gen/ambient/v1/sessions_pb.ts";
import type { Run, RunsHandlers, RunsPage } from "../api/runs.ts";
import { serverBusy } from "../auth/caller-memory.ts";
import { ServiceError } from "../base/errors.ts";
import type { Handlers } from "../contract/context.ts";
import { timestampOf } from "../contract/times.ts";
import type { TranscriptHandlers } from "../conversation/transcripts.ts";
import {
  answer,
  JSON_TYPE,
  jsonArray,
  jsonObject,
  PROBLEMS,
  rfc3339Of,
  sendJson,
  seqNumber,
  timeText,
} from "./answers.ts";
import { countParameter, NO_QUERY, seqParameter, SESSION_ID, sessionParams } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { renamed, withNames } from "./plumbing/problem.ts";

export interface SessionRouteParts {
  readonly handlers: Pick<
    Handlers<typeof SessionService>,
    "createSession" | "listSessions" | "getSession" | "updateSession" | "deleteSession"
  >;
  readonly runs: RunsHandlers;
  readonly transcripts: TranscriptHandlers;
}

export function sessionRoutes(app: App, parts: SessionRouteParts): void {
  storedSessionRoutes(app, parts);
  runRoutes(app, parts);
  transcriptRoutes(app, parts);
}

/** A field that every session has is present even when it is empty. */
const EMITTED = { alwaysEmitImplicit: true } as const;

const PAGE_MAX = 100_000;
const SIZE = { fallback: 100, max: 1_000 };

/** The JSON of protobuf has numbers of 64 bits as text. */
const int64Text = z.string().meta({ format: "int64" });

const sessionSchema = z
  .strictObject({
    metadata: z.strictObject({
      id: z.string(),
      createdAt: timeText,
      updatedAt: timeText,
      kind: z.literal("Session"),
      href: z.string(),
    }),
    name: z.string(),
    prompt: z.string().optional(),
    createdByUserId: z.string().optional(),
    llmModel: z.string().optional(),
    parentSessionId: z.string().optional(),
    labels: z.string().optional(),
    annotations: z.string().optional(),
    projectId: z.string().optional(),
    phase: z.string().optional(),
    startTime: timeText.optional(),
    completionTime: timeText.optional(),
    agentId: z.string().optional(),
    lastActivityAt: timeText.optional(),
    messageSeq: int64Text,
    eventSeq: int64Text,
    rows: int64Text,
    payloadBytes: int64Text,
    openRunId: z.string().optional(),
    turnSeq: int64Text,
    waiting: int64Text,
  })
  .meta({ id: "Session" });

const sessionsSchema = z.strictObject({
  items: z.array(sessionSchema),
  metadata: z.strictObject({
    page: z.int(),
    size: z.int().meta({ description: "Sessions on this page." }),
    total: z.int(),
  }),
});

function storedSessionRoutes(app: App, { handlers }: SessionRouteParts): void {
  app.get("/sessions", { schema: LIST }, async (request, reply) => {
    const asked = create(ListSessionsRequestSchema, request.query);
    const listed = await handlers.listSessions(asked, callContextOf(request));
    return sendJson(reply, JSON.stringify(toJson(ListSessionsResponseSchema, listed, EMITTED)));
  });
  app.post("/sessions", { schema: CREATE }, async (request, reply) => {
    const asked = create(CreateSessionRequestSchema, request.body);
    const session = await handlers
      .createSession(asked, callContextOf(request))
      .catch((error: unknown) => Promise.reject(withJsonNames(ServiceError.from(error))));
    void reply.header("location", session.metadata?.href);
    const text = JSON.stringify(toJson(SessionSchema, session, EMITTED));
    return sendJson(reply, text, { status: 201 });
  });
  app.get("/sessions/:id", { schema: GET }, async (request, reply) => {
    const asked = create(GetSessionRequestSchema, request.params);
    const session = await handlers.getSession(asked, callContextOf(request));
    return sendJson(reply, JSON.stringify(toJson(SessionSchema, session, EMITTED)));
  });
  app.patch("/sessions/:id", { schema: UPDATE }, async (request, reply) => {
    const asked = create(UpdateSessionRequestSchema, { ...request.body, id: request.params.id });
    const session = await handlers.updateSession(asked, callContextOf(request));
    return sendJson(reply, JSON.stringify(toJson(SessionSchema, session, EMITTED)));
  });
  app.delete("/sessions/:id", { schema: DELETE }, async (request, reply) => {
    const asked = create(DeleteSessionRequestSchema, request.params);
    await handlers.deleteSession(asked, callContextOf(request));
    return reply.code(204).send();
  });
}

const LIST = {
  operationId: "listSessions",
  summary: "Sessions, the newest first",
  description:
    "A page that would pass 3 MiB comes without prompts, then without labels and annotations, then with ids, phases, times and the first 128 characters of names alone.",
  tags: ["sessions"],
  querystring: z.strictObject({
    page: countParameter("Which page.", { fallback: 1, max: PAGE_MAX }),
    size: countParameter("Sessions on a page.", SIZE),
  }),
  response: { 200: answer("A page of sessions.", sessionsSchema), ...PROBLEMS },
};

/** Protobuf's JSON mapping spells fields in camelCase. */
const JSON_NAMES = {
  llm_model: "llmModel",
  parent_session_id: "parentSessionId",
  project_id: "projectId",
};

function withJsonNames(error: ServiceError): ServiceError {
  return withNames(error, (name) => renamed(name, JSON_NAMES));
}

const textField = () => z.string({ error: "must be a text" });
/** Those that may change later. */
const FIELDS = {
  name: textField().meta({ description: "A name for people, at most 1,024 bytes." }),
  labels: textField().optional().meta({ description: "Kept as it is, at most 64 KiB." }),
  annotations: textField().optional().meta({ description: "Kept as it is, at most 64 KiB." }),
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
      prompt: textField().optional().meta({ description: "The task of the agent, at most 1 MiB." }),
      llmModel: textField().optional().meta({ description: "The model, at most 1,024 bytes." }),
      parentSessionId: textField()
        .optional()
        .meta({ description: "The session that starts this one.", ...SESSION_ID }),
      projectId: textField().optional().meta({
        description: "The project, at most 1,024 bytes. A token of a project may name only that.",
      }),
    },
    { error: "must be an object with a name" },
  ),
  response: { 201: answer("The session.", sessionSchema), ...PROBLEMS },
};

const GET = {
  operationId: "getSession",
  summary: "One session",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  response: { 200: answer("The session.", sessionSchema), ...PROBLEMS },
};

const UPDATE = {
  operationId: "updateSession",
  summary: "Change the name, labels or annotations of a session",
  description: "Absent fields stay unchanged.",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  body: z.strictObject(
    { ...FIELDS, name: FIELDS.name.optional() },
    { error: "must be an object with name, labels or annotations" },
  ),
  response: { 200: answer("The session as it is now.", sessionSchema), ...PROBLEMS },
};

const DELETE = {
  operationId: "deleteSession",
  summary: "Delete a session",
  description: "From now on it is 404, its watches end, and nothing can be pushed to it.",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  response: { 204: z.undefined().meta({ description: "Deleted." }), ...PROBLEMS },
};

/** Each run takes a read of two payloads, of up to 3 MiB. */
const LIMIT = { fallback: 100, max: 100 };

function runRoutes(app: App, { runs }: SessionRouteParts): void {
  app.get("/sessions/:id/runs", { schema: RUNS }, async (request, reply) => {
    const { after_seq: afterSeq = 0n, limit: runsMax } = request.query;
    const asked = { sessionId: request.params.id, afterSeq, runsMax };
    return sendJson(reply, pageJson(await runs.listRuns(asked, callContextOf(request))));
  });
}

function pageJson({ runs, nextAfter, hasMore }: RunsPage): string {
  return jsonObject({
    kind: '"SessionRunList"',
    items: jsonArray(runs.map(runJson)),
    next_after_seq: nextAfter.toString(),
    has_more: String(hasMore),
  });
}

function runJson(run: Run): string {
  const { parentRunId, endedAtMicros } = run;
  return jsonObject({
    run_id: JSON.stringify(run.runId),
    parent_run_id: parentRunId === undefined ? undefined : JSON.stringify(parentRunId),
    status: JSON.stringify(run.status),
    first_seq: run.firstSeq.toString(),
    last_seq: run.lastSeq.toString(),
    started_at: timeJson(run.startedAtMicros),
    ended_at: endedAtMicros === undefined ? undefined : timeJson(endedAtMicros),
    raw_events: run.rawEvents.toString(),
    rows: run.rows.toString(),
    bytes: run.bytes.toString(),
  });
}

function timeJson(micros: bigint): string {
  return `"${rfc3339Of(timestampOf(micros))}"`;
}

const runSchema = z
  .strictObject({
    run_id: z.string(),
    parent_run_id: z.string().optional(),
    status: z.enum(["running", "finished", "error", "interrupted", "stalled"]).meta({
      description:
        "running: no end yet; stalled: no end, and another run began behind it or nothing came for RUN_STALE_AFTER; interrupted: it waits for an answer.",
    }),
    first_seq: seqNumber,
    last_seq: seqNumber,
    started_at: timeText,
    ended_at: timeText.optional(),
    raw_events: seqNumber.meta({ description: "Events as they were before compression." }),
    rows: seqNumber,
    bytes: seqNumber.meta({ description: "Of the payloads, as stored." }),
  })
  .meta({ id: "Run" });

const RUNS = {
  operationId: "listRuns",
  summary: "Runs, in order",
  tags: ["events"],
  params: sessionParams,
  querystring: z.strictObject({
    after_seq: seqParameter(
      "Only runs that begin above this number; `next_after_seq` of the page before.",
    ),
    limit: countParameter("The most runs of a page.", LIMIT),
  }),
  response: {
    200: answer(
      "A page of runs.",
      z.strictObject({
        kind: z.literal("SessionRunList"),
        items: z.array(runSchema),
        next_after_seq: seqNumber,
        has_more: z.boolean(),
      }),
    ),
    ...PROBLEMS,
  },
};

/** The text is joined, and then encoded in up to three bytes per character. */
const COPIED_PER_CHAR = 4;

const READABLE = {
  text: "text/plain; charset=utf-8",
  markdown: "text/markdown; charset=utf-8",
} as const;

/** The conversation as an AG-UI client would show it, as data or as readable text. */
function transcriptRoutes(app: App, { transcripts }: SessionRouteParts): void {
  app.get("/sessions/:id/transcript", { schema: TRANSCRIPT }, async (request, reply) => {
    const { id } = request.params;
    const { up_to_seq: upToSeq, format } = request.query;
    const asked = { sessionId: id, upToSeq };
    const context = callContextOf(request);
    const transcript = await transcripts.readTranscript(asked, context);
    // Counted before a copy is made that the caller may never read.
    const { messagesText, stateText = "", interruptsText } = transcript;
    const chars = messagesText.length + stateText.length + interruptsText.length;
    if (context.memory?.mayAnswer(chars * COPIED_PER_CHAR) === false) throw serverBusy();
    if (format === "json") {
      const text = jsonObject({
        session_id: JSON.stringify(id),
        up_to_seq: transcript.seq.toString(),
        up_to_message_seq: transcript.cut.messages.toString(),
        messages: transcript.messagesText,
        state: transcript.stateText,
        state_too_large: transcript.isStateTooLarge ? "true" : undefined,
        interrupts: transcript.interruptsText,
      });
      return sendJson(reply, text);
    }
    return reply.type(READABLE[format]).send(transcript.readable(format));
  });
}

const transcriptSchema = z.strictObject({
  session_id: z.string(),
  up_to_seq: seqNumber,
  up_to_message_seq: seqNumber,
  messages: z.array(z.looseObject({ id: z.string(), role: z.string() })),
  state: z.unknown().optional().meta({ description: "Absent: none was ever set." }),
  state_too_large: z.literal(true).optional().meta({
    description: "There is state, but patches took it past 64 MiB.",
  }),
  interrupts: z.array(z.looseObject({ id: z.string() })),
});

const TRANSCRIPT = {
  operationId: "getTranscript",
  summary: "The reduced conversation",
  description:
    "What an AG-UI client has that saw everything: the messages, those of people included, the state, and the interrupts that wait for an answer. The formats to read have the messages only.",
  tags: ["transcript"],
  params: sessionParams,
  querystring: z.strictObject({
    up_to_seq: seqParameter("As it was before the next event after this one."),
    format: z
      .enum(["json", "text", "markdown"], { error: "must be json, text or markdown" })
      .default("json")
      .meta({
        description: "The last two are for a person: who says what, tools and their results.",
      }),
  }),
  response: {
    200: {
      description: "The conversation.",
      content: {
        [JSON_TYPE]: { schema: transcriptSchema },
        "text/plain": { schema: z.string() },
        "text/markdown": { schema: z.string() },
      },
    },
    ...PROBLEMS,
  },
};
