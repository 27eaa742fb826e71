/**
 * Events for AG-UI clients, and the last event of an answer that ends early.
 *
 * A client takes the end of an answer for the end of the run, with or without RUN_FINISHED. So when
 * an answer ends early (the service stops, the session is deleted, the database fails), the client
 * gets a RUN_ERROR that is not stored, with the reason as its code. A client that asks again gets
 * the session in its newest state. Between two runs no run can be taken for ended, and clients
 * accept no second RUN_ERROR. There the error is a comment.
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
