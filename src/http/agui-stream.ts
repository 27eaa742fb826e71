/**
 * Events for AG-UI clients, and what they are told when their answer ends before its time.
 *
 * To a client an answer that ends is a run that ended, with or without RUN_FINISHED. So what ends one
 * early (the service stops, the session is deleted, the database fails) is told as a RUN_ERROR that is
 * not stored, with the reason for a code. Whoever asks again gets the session as it is by then. Between
 * two runs there is none to be taken for ended, and clients take no RUN_ERROR behind another: there it
 * is a comment.
 */
import type { FastifyReply } from "fastify";
import type { ServiceError } from "../base/errors.ts";
import type { AguiFrame } from "../conversation/join.ts";
import type { CallContext } from "../contract/context.ts";
import { type EventStreamOptions, sendEventStream } from "./sse.ts";
import type { SseFrame } from "./sse-frames.ts";

export function sendAguiStream(
  reply: FastifyReply,
  context: CallContext,
  frames: AsyncIterable<AguiFrame>,
  options: Omit<EventStreamOptions, "failure">,
): Promise<void> {
  let isBetweenRuns = false;
  return sendEventStream(reply, context, noted(), {
    ...options,
    failure: (error) => (isBetweenRuns ? { comment: error.reason } : runError(error)),
  });

  async function* noted(): AsyncGenerator<SseFrame, void, undefined> {
    for await (const frame of frames) {
      if ("endsRun" in frame) isBetweenRuns = frame.endsRun;
      yield frame;
    }
  }
}

function runError({ message, reason }: ServiceError): SseFrame {
  return { data: JSON.stringify({ type: "RUN_ERROR", message, code: reason }) };
}
