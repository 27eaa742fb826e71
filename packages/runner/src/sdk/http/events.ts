/**
 * The events of a run as server-sent events, at the pace of the reader. A reader that leaves ends
 * the run, as AG-UI's `abortRun` does. A too long event is replaced (payload-limits.ts).
 */
import { textOf } from "../../failure.ts";
import type { AgentEvent } from "../bridge.ts";
import { fitPayload } from "../payload-limits.ts";

/** CopilotKit's client fails with longer frames. */
const FRAME = { max: 10 * 1_024 * 1_024, sizeOf: ({ length }: string) => length };

/** Proxies close a connection that is silent for a minute. */
const HEARTBEAT_MS = 15_000;

const HEADERS = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache",
  // nginx would collect the stream, and pass it on in blocks.
  "x-accel-buffering": "no",
};

/** `leave` aborts the run; its last events are still taken, so that the ledger has its end. */
export function eventStream(
  source: AsyncIterable<AgentEvent>,
  leave: (reason: Error) => void,
): Response {
  const events = source[Symbol.asyncIterator]();
  const utf8 = new TextEncoder();
  const end = (reason: string): void => {
    clearInterval(heartbeat);
    leave(new DOMException(reason, "AbortError"));
    void drain(events);
  };
  let heartbeat: ReturnType<typeof setInterval> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      heartbeat = setInterval(() => {
        if ((controller.desiredSize ?? 0) > 0) controller.enqueue(utf8.encode(":\n\n"));
      }, HEARTBEAT_MS);
    },
    async pull(controller) {
      const next = await nextOf(events);
      if (next !== undefined) controller.enqueue(utf8.encode(`data: ${next.text}\n\n`));
      if (next?.isFatal === true) end("an event of the run cannot be sent");
      if (next === undefined || next.isFatal) {
        clearInterval(heartbeat);
        controller.close();
      }
    },
    cancel: () => end("the reader left"),
  });
  return new Response(body, { headers: HEADERS });
}

/** Undefined: the run is over. */
async function nextOf(events: AsyncIterator<AgentEvent>): Promise<Printed | undefined> {
  try {
    const { done, value } = await events.next();
    return done === true ? undefined : printed(value);
  } catch (error) {
    const text = JSON.stringify({ type: "RUN_ERROR", message: textOf(error) });
    return { text, isFatal: true };
  }
}

async function drain(events: AsyncIterator<AgentEvent>): Promise<void> {
  try {
    while ((await events.next()).done !== true);
  } catch {
    // The reader has left: the error of the run is in the ledger.
  }
}

function printed(event: AgentEvent): Printed {
  const { text, event: shown, problem } = fitPayload(event, FRAME);
  return { text, isFatal: problem !== undefined && shown.type === "RUN_ERROR" };
}

interface Printed {
  readonly text: string;
  readonly isFatal: boolean;
}
