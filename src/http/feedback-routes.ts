/** Feedback on a message: what GiveFeedback of gRPC is, for pages. */
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import { GiveFeedbackRequestSchema } from "@session-ledger/proto/ambient/v1/conversation_pb";
import {
  answer,
  eventItem,
  eventItemSchema,
  PROBLEMS,
  sendJson,
  type RouteParts,
} from "./answers.ts";
import { NO_QUERY, sessionParams } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";

export function feedbackRoutes(app: App, { handlers }: RouteParts<"giveFeedback">): void {
  app.post("/sessions/:id/messages/:message/feedback", { schema: GIVE }, async (request, reply) => {
    const { id: sessionId, message: messageId } = request.params;
    const { kind, comment, trace_id: traceId } = request.body;
    const asked = { sessionId, messageId, kind, comment, traceId };
    const event = await handlers.giveFeedback(
      create(GiveFeedbackRequestSchema, asked),
      callContextOf(request),
    );
    if (event.deduplicated) void reply.header("idempotent-replayed", "true");
    return sendJson(reply, eventItem(event), { status: 201 });
  });
}

const text = () => z.string({ error: "must be a text" });

const GIVE = {
  operationId: "giveFeedback",
  summary: "Say what you think of a message",
  description:
    "The last feedback of a caller on a message counts, and is in the message's `metadata.session.feedback` in the transcript and for AG-UI clients that join. The same feedback again has the header `Idempotent-Replayed: true`.",
  tags: ["messages"],
  params: sessionParams.extend({
    message: z.string().meta({ description: "The id of a message of the transcript." }),
  }),
  querystring: NO_QUERY,
  body: z.strictObject(
    {
      kind: text().meta({
        description: "`thumbs_up`, `thumbs_down`, or another word.",
        pattern: "^[A-Za-z0-9_.:-]{1,64}$",
      }),
      comment: text().default("").meta({ description: "At most 4 KiB." }),
      trace_id: text().default("").meta({ description: "At most 128 bytes." }),
    },
    { error: "must be an object with a kind" },
  ),
  response: { 201: answer("The META event as it is stored.", eventItemSchema), ...PROBLEMS },
};
