/** The sessions, in protobuf's own JSON mapping. */
import { create, toJson } from "@bufbuild/protobuf";
import { z } from "zod";
import {
  DeleteSessionRequestSchema,
  GetSessionRequestSchema,
  ListSessionsRequestSchema,
  ListSessionsResponseSchema,
  SessionSchema,
  type SessionService,
} from "../../gen/ambient/v1/sessions_pb.ts";
import type { Handlers } from "../contract/context.ts";
import { answer, PROBLEMS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { timeText } from "./items.ts";
import { countParameter, NO_QUERY, sessionParams } from "./parameters.ts";

export interface SessionRouteParts {
  readonly handlers: Pick<
    Handlers<typeof SessionService>,
    "listSessions" | "getSession" | "deleteSession"
  >;
}

/** A field that every session has is present even when it is empty. */
const EMITTED = { alwaysEmitImplicit: true } as const;

const PAGE_MAX = 100_000;
const SIZE = { fallback: 100, max: 1_000 };

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

export function sessionRoutes({ handlers }: SessionRouteParts): (app: App) => void {
  return (app) => {
    app.get("/sessions", { schema: LIST }, async (request, reply) => {
      const asked = create(ListSessionsRequestSchema, request.query);
      const listed = await handlers.listSessions(asked, callContextOf(request));
      return sendJson(reply, JSON.stringify(toJson(ListSessionsResponseSchema, listed, EMITTED)));
    });
    app.get("/sessions/:id", { schema: GET }, async (request, reply) => {
      const asked = create(GetSessionRequestSchema, request.params);
      const session = await handlers.getSession(asked, callContextOf(request));
      return sendJson(reply, JSON.stringify(toJson(SessionSchema, session, EMITTED)));
    });
    app.delete("/sessions/:id", { schema: DELETE }, async (request, reply) => {
      const asked = create(DeleteSessionRequestSchema, request.params);
      await handlers.deleteSession(asked, callContextOf(request));
      return reply.code(204).send();
    });
  };
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

const GET = {
  operationId: "getSession",
  summary: "One session",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  response: { 200: answer("The session.", sessionSchema), ...PROBLEMS },
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
