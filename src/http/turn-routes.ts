/** The claim of a turn, for runners that speak HTTP only, and the cancel of a run: as over gRPC. */
import { create, fromJson } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { z } from "zod";
import {
  CancelRunRequestSchema,
  ClaimTurnRequestSchema,
  type ClaimTurnResponse,
} from "@session-ledger/proto/ambient/v1/turns_pb";
import {
  answer,
  eventItem,
  eventItemSchema,
  jsonArray,
  jsonObject,
  messageItem,
  messageItemSchema,
  ofSession,
  PROBLEMS,
  sendJson,
  seqNumber,
  type RouteParts,
} from "./answers.ts";
import { inCamelCase, NO_QUERY, seqParameter, sessionParams, textMember } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";

export function turnRoutes(app: App, { handlers }: RouteParts): void {
  app.post("/sessions/:id/turns", { schema: CLAIM }, async (request, reply) => {
    const { run_started: started, ...body } = request.body;
    const asked = create(ClaimTurnRequestSchema, {
      sessionId: request.params.id,
      runStarted: JSON.stringify(started),
      ...inCamelCase(body),
    });
    const turn = await handlers.claimTurn(asked, callContextOf(request));
    const isReplayed = turn.runStarted?.deduplicated ?? false;
    return sendJson(reply, turnJson(turn), { isReplayed });
  });
  app.post("/sessions/:id/runs/:run/cancel", { schema: CANCEL }, async (request, reply) => {
    const { id: sessionId, run: runId } = request.params;
    const { reason = "" } = request.body ?? {};
    const asked = create(CancelRunRequestSchema, { sessionId, runId, reason });
    const message = await handlers.cancelRun(asked, callContextOf(request));
    return sendJson(reply, messageItem(message), { isReplayed: message.deduplicated });
  });
}

function turnJson(turn: ClaimTurnResponse): string {
  const { runStarted, messages, waiting, producerEpoch, lostRunId } = turn;
  return jsonObject({
    run_started: runStarted && eventItem(runStarted),
    messages: jsonArray(messages.map((message) => messageItem(message))),
    waiting: waiting.toString(),
    producer_epoch: `"${producerEpoch}"`,
    lost_run_id: lostRunId === "" ? undefined : JSON.stringify(lostRunId),
  });
}

/** A number, or its digits as text: JavaScript rounds numbers above 2^53. */
function wholeNumber(description: string) {
  return seqParameter(description).default(0n).meta({ default: 0 });
}

const MESSAGES_ERROR = "must be a whole number from 1 to 1000";

const CLAIM = {
  operationId: "claimTurn",
  summary: "Claim the waiting messages as the next run",
  description:
    "What ClaimTurn of gRPC does. Without `run_started`, the answer means that no message came in time. A repeated claim of the same run has the header `Idempotent-Replayed: true`.",
  ...ofSession("turns"),
  body: z.strictObject(
    {
      run_started: z
        .looseObject({}, { error: "must be an object with a runId" })
        .meta({ description: "The RUN_STARTED event; `runId` is required." }),
      producer_epoch: wholeNumber("The writer's generation; 0: the highest so far plus 1."),
      up_to_seq: wholeNumber("Take messages up to this number; 0: any."),
      messages_max: z
        .int({ error: MESSAGES_ERROR })
        .min(1, { error: MESSAGES_ERROR })
        .max(1_000, { error: MESSAGES_ERROR })
        .default(10)
        .meta({ description: "The most messages of the turn." }),
      wait: z
        .string({ error: "must be a duration like 30s" })
        .regex(/^\d{1,9}(?:\.\d{1,9})?s$/, { error: "must be a duration like 30s" })
        .optional()
        .transform((text) => (text === undefined ? undefined : fromJson(DurationSchema, text)))
        .meta({ description: "How long to wait for a message: up to `60s`." }),
      envelope_tokens: wholeNumber("Tokens that the runner added around the messages."),
      redeliver: z.boolean({ error: "must be true or false" }).default(false).meta({
        description: "Take the messages of a lost run without output again.",
      }),
    },
    { error: "must be an object with run_started" },
  ),
  response: {
    200: answer(
      "The turn, or that nothing came.",
      z.strictObject({
        run_started: eventItemSchema.optional(),
        messages: z.array(messageItemSchema),
        waiting: seqNumber.meta({ description: "Messages that are left." }),
        producer_epoch: z.string().meta({
          description: "For the pushes of the run, as text: it may be above 2^53.",
        }),
        lost_run_id: z.string().optional().meta({ description: "The run that the claim ended." }),
      }),
    ),
    ...PROBLEMS,
  },
};

const CANCEL = {
  operationId: "cancelRun",
  summary: "Ask the producer of the open run to end it",
  description:
    "What CancelRun of gRPC does: if the run is open after CANCEL_GRACE, the service ends it. A repeated request gets the first message, with the header `Idempotent-Replayed: true`.",
  tags: ["turns"],
  params: sessionParams.extend({ run: z.string().meta({ description: "The open run." }) }),
  querystring: NO_QUERY,
  body: z
    .strictObject(
      {
        reason: textMember()
          .optional()
          .meta({ description: "Why, for the producer and for readers: at most 1,024 bytes." }),
      },
      { error: "must be an object" },
    )
    .nullish(),
  response: {
    200: answer("The message that reports the cancel to every reader.", messageItemSchema),
    ...PROBLEMS,
  },
};
