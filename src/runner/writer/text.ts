/** A plain stream of text, as the events of one run. */
import { textOf } from "../failure.ts";
import type { TextOptions } from "./types.ts";

/** The events; when the text fails, the last event is a RUN_ERROR. */
export async function* eventsOfText(
  stream: AsyncIterable<string>,
  options: TextOptions & { readonly threadId: string },
): AsyncGenerator<object, void, undefined> {
  const { threadId, role = "assistant" } = options;
  const { runId = crypto.randomUUID(), messageId = crypto.randomUUID() } = options;
  yield { type: "RUN_STARTED", threadId, runId };
  yield { type: "TEXT_MESSAGE_START", messageId, role };
  try {
    // An empty piece has no content, and older AG-UI clients refuse it.
    for await (const delta of stream) {
      if (delta !== "") yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
    }
  } catch (error) {
    yield { type: "RUN_ERROR", message: textOf(error) };
    return;
  }
  yield { type: "TEXT_MESSAGE_END", messageId };
  yield { type: "RUN_FINISHED", threadId, runId };
}
