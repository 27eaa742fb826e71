/** What ForkSession of gRPC is, for pages: protobuf's own JSON mapping, as of the other sessions' routes. */
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import { ForkSessionRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ServiceError } from "@session-ledger/base/errors";
import { answer, PROBLEMS, sendJson, type RouteParts } from "./answers.ts";
import { keyOf } from "./message-routes.ts";
import { NO_QUERY, SESSION_ID, seqParameter, sessionParams } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { renamed, withNames } from "./plumbing/problem.ts";
import { sessionJson, sessionSchema } from "./session-routes.ts";

const JSON_NAMES = { new_id: "newId", at_seq: "atSeq", at_message_seq: "atMessageSeq" };

export function forkRoutes(app: App, { handlers }: RouteParts<"forkSession">): void {
  app.post("/sessions/:id/fork", { schema: FORK }, async (request, reply) => {
    const { newId = "", atSeq = 0n, atMessageSeq = 0n } = request.body;
    const idempotencyKey = keyOf(request.headers["idempotency-key"]);
    const asked = { sessionId: request.params.id, newId, idempotencyKey, atSeq, atMessageSeq };
    const session = await handlers
      .forkSession(create(ForkSessionRequestSchema, asked), callContextOf(request))
      .catch((error: unknown) => {
        throw withNames(ServiceError.from(error), (name) => renamed(name, JSON_NAMES));
      });
    void reply.header("location", session.metadata?.href);
    return sendJson(reply, sessionJson(session), { status: 201 });
  });
}

const FORK = {
  operationId: "forkSession",
  summary: "Make a session with the history of this one up to a number",
  description:
    "Needs `atSeq` or `atMessageSeq`, and not both. With `Idempotency-Key` the same request again gives the same session. A caller who sees every session may give a `newId` instead; another request for a taken one is 409, SESSION_EXISTS.",
  tags: ["sessions"],
  params: sessionParams,
  querystring: NO_QUERY,
  headers: z.object({
    "idempotency-key": z.string().optional().meta({
      description:
        "UTF-8, at most 128 bytes. A repetition with the same key and number is answered with the fork of the first; with another number it is 409, KEY_REUSED.",
    }),
  }),
  body: z.strictObject(
    {
      newId: z
        .string({ error: "must be a text" })
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
