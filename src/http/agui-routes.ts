/**
 * A session as an AG-UI agent, for `new HttpAgent({ url }).runAgent()`. New parts of the input
 * become a message of the session.
 */
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { flatMap } from "../base/pull.ts";
import type { CallContext } from "../contract/context.ts";
import type { AguiFrame } from "../conversation/event-writer.ts";
import type { AguiInputs } from "./agui-input.ts";
import { answer, PROBLEMS, type RouteParts } from "./answers.ts";
import { flagParameter, seqParameter, sessionParams, textMember } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { streamContextOf } from "./plumbing/call-context.ts";
import { type EventStreamOptions, sendEventStream } from "./sse.ts";

export interface AguiRouteParts extends RouteParts {
  readonly inputs: AguiInputs;
}

export function aguiRoutes(app: App, { runAgent, inputs, ...stream }: AguiRouteParts): void {
  app.post("/agui/sessions/:id", { schema: RUN }, async (request, reply) => {
    const { follow, replay, up_to_seq: upToSeq } = request.query;
    const { protocolVersion, messages } = request.body;
    const context = streamContextOf(request);
    const asked = {
      sessionId: request.params.id,
      protocolVersion: protocolVersion ?? undefined,
      ...inputs.keep(messages, reply),
      isReadOnly: upToSeq !== undefined,
      follow,
      canWait: upToSeq === undefined,
      replay,
      upToSeq,
    };
    await sendAguiStream(reply, context, runAgent(asked, context), stream);
  });
}

const optionalText = textMember().nullish();
export const INPUT_ERROR = "must be an object, a RunAgentInput";

/** Clients before 0.0.59; they do not send their version by themselves. */
const UNSERVED = /^0\.(?!0\.59$)/;

/** Only the used fields are checked: clients of every version send all they have. */
export const runAgentInput = z.looseObject(
  {
    threadId: optionalText,
    runId: optionalText,
    protocolVersion: optionalText
      .refine((version) => !UNSERVED.test(version ?? ""), {
        error: "must be 0.0.59, or 1.0 or later",
      })
      .meta({
        description: "What the client can parse: 0.0.59, or 1.0 or later. Without one: 0.0.59.",
      }),
    messages: z.array(z.unknown(), { error: "must be a list" }).nullish().meta({
      description:
        "The new ones at the end, of users and tools, are stored as one message of the session.",
    }),
    resume: z.array(z.unknown(), { error: "must be a list" }).nullish().meta({
      description: "Answers to interrupts; those that the session waits for are stored too.",
    }),
  },
  { error: INPUT_ERROR },
);

const RUN = {
  operationId: "joinSession",
  summary: "Talk to the session, or join it, as an AG-UI client",
  description:
    "Server-sent events: RUN_STARTED of the newest run, MESSAGES_SNAPSHOT, STATE_SNAPSHOT, the open constructs, and new events until the run ends. With new messages or answers, which are stored first, the answer waits for the run that takes them and lasts until its end. `id:` is the number of the last event in it.",
  tags: ["agui"],
  params: sessionParams,
  querystring: z
    .strictObject({
      follow: flagParameter("Stay for further runs."),
      replay: z
        .enum(["snapshot", "events"], { error: "must be snapshot or events" })
        .default("snapshot")
        .meta({ description: "`events`: every event from the beginning, in place of a snapshot." }),
      up_to_seq: seqParameter(
        "As it was before the next event after this one, such as the end of an earlier branch.",
      ),
    })
    .refine(
      ({ follow, replay, up_to_seq: upTo }) =>
        upTo === undefined || (!follow && replay === "snapshot"),
      {
        path: ["up_to_seq"],
        error: "must not be given with follow or replay",
      },
    ),
  body: runAgentInput,
  response: { 200: answer("Events.", z.string(), "text/event-stream"), ...PROBLEMS },
};

/**
 * Events for AG-UI clients. A client takes the end of an answer for the end of the run. So an
 * answer that ends early (the service stops, the session is deleted, the database fails) ends with
 * a RUN_ERROR that is not stored and has the reason as its code. Between runs clients accept none,
 * and the error is a comment.
 */

export function sendAguiStream(
  reply: FastifyReply,
  context: CallContext,
  frames: AsyncIterable<AguiFrame>,
  options: Omit<EventStreamOptions, "failure">,
): Promise<void> {
  let isBetweenRuns = false;
  const observed = flatMap(frames, (frame) => {
    if ("endsRun" in frame) isBetweenRuns = frame.endsRun;
    return [frame];
  });
  return sendEventStream(reply, context, observed, {
    ...options,
    failure: ({ message, reason: code }) =>
      isBetweenRuns
        ? { comment: code }
        : { data: JSON.stringify({ type: "RUN_ERROR", message, code }) },
  });
}
