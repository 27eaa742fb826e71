/** The conversation as an AG-UI client would show it, as data or as readable text. */
import { z } from "zod";
import { serverBusy } from "../auth/caller-memory.ts";
import type { TranscriptHandlers } from "../conversation/transcripts.ts";
import { JSON_TYPE, PROBLEMS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { jsonObject, seqNumber } from "./items.ts";
import { seqParameter, sessionParams } from "./parameters.ts";

export interface TranscriptRouteParts {
  readonly transcripts: TranscriptHandlers;
}

/** The text is joined, and then encoded in up to three bytes per character. */
const COPIED_PER_CHAR = 4;

const READABLE = {
  text: "text/plain; charset=utf-8",
  markdown: "text/markdown; charset=utf-8",
} as const;

export function transcriptRoutes({ transcripts }: TranscriptRouteParts): (app: App) => void {
  return (app) => {
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
          up_to_seq: transcript.upToSeq.toString(),
          messages: transcript.messagesText,
          state: transcript.stateText,
          state_too_large: transcript.isStateTooLarge ? "true" : undefined,
          interrupts: transcript.interruptsText,
        });
        return sendJson(reply, text);
      }
      return reply.type(READABLE[format]).send(transcript.readable(format));
    });
  };
}

const transcriptSchema = z.strictObject({
  session_id: z.string(),
  up_to_seq: seqNumber,
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
    "What an AG-UI client has that saw every event: the messages, the state, and the interrupts that wait for an answer. The formats to read have the messages only.",
  tags: ["transcript"],
  params: sessionParams,
  querystring: z.strictObject({
    up_to_seq: seqParameter("As it was when this event was the last one."),
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
