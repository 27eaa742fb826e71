/**
 * The events of a run as server-sent events, at the pace of the reader: the next event is taken when
 * the reader has room. The reader that leaves ends the run, as AG-UI's `abortRun` does.
 *
 * An event that cannot be printed, or is longer than a client takes, is replaced:
 *
 *   of a tool call ─► TOOL_CALL_RESULT with a placeholder, and the run goes on
 *   another one ────► RUN_ERROR, and the run is ended
 */
import { textOf } from "../../runner/failure.ts";
import type { AgentEvent } from "../bridge.ts";

/** CopilotKit's client fails with longer frames. */
const FRAME_CHARS_MAX = 10 * 1_024 * 1_024;

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

interface Printed {
  readonly text: string;
  readonly isFatal: boolean;
}

function printed(event: AgentEvent): Printed {
  let problem: string;
  try {
    const text = JSON.stringify(event);
    if (text.length <= FRAME_CHARS_MAX) return { text, isFatal: false };
    problem = `it has ${text.length} characters, ${FRAME_CHARS_MAX} are allowed`;
  } catch (error) {
    problem = textOf(error);
  }
  return replaced(event, problem);
}

function replaced({ type, toolCallId, messageId }: AgentEvent, problem: string): Printed {
  if (typeof toolCallId !== "string") {
    const message = `an event ${type} cannot be sent: ${problem}`;
    return { text: JSON.stringify({ type: "RUN_ERROR", message }), isFatal: true };
  }
  const text = JSON.stringify({
    type: "TOOL_CALL_RESULT",
    messageId: typeof messageId === "string" ? messageId : `${toolCallId}-result`,
    toolCallId,
    role: "tool",
    content: `[The result cannot be shown: ${problem}]`,
  });
  return { text, isFatal: false };
}
