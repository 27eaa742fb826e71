/** The hold of a session. */
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import { HoldSessionRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { answer, PROBLEMS, sendJson, type RouteParts } from "./answers.ts";
import { NO_QUERY, sessionParams } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { sessionJson, sessionSchema } from "./session-routes.ts";

export function holdRoutes(app: App, { handlers }: RouteParts<"holdSession">): void {
  app.put("/sessions/:id/hold", { schema: HOLD }, async (request, reply) => {
    const asked = create(HoldSessionRequestSchema, { ...request.params, ...request.body });
    const session = await handlers.holdSession(asked, callContextOf(request));
    return sendJson(reply, sessionJson(session));
  });
  app.delete("/sessions/:id/hold", { schema: RELEASE }, async (request, reply) => {
    const asked = create(HoldSessionRequestSchema, { ...request.params, release: true });
    const session = await handlers.holdSession(asked, callContextOf(request));
    return sendJson(reply, sessionJson(session));
  });
}

const NOW = { 200: answer("The session as it is now.", sessionSchema), ...PROBLEMS };

const HOLD = {
  operationId: "holdSession",
  summary: "Hold a session",
  description:
    "For admins. Neither retention nor a person erases it, and it is not deleted; pushes go on. Also for a deleted session.",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  body: z.strictObject(
    {
      reason: z
        .string({ error: "must be a text" })
        .meta({ description: "Why, for people; at most 1,024 bytes." }),
    },
    { error: "must be an object with a reason" },
  ),
  response: NOW,
};

const RELEASE = {
  operationId: "releaseSession",
  summary: "End the hold of a session",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  response: NOW,
};
