/**
 * A plain text, whole, in pieces, or as bytes of UTF-8 that are cut anywhere, as the events of one
 * run with one message. When the text fails, the last event is a RUN_ERROR.
 */
import { textOf } from "./failure.ts";
import type { Text, TextOptions } from "./writer/types.ts";

/** A character may take 6 bytes of JSON, and a payload has at most 1 MiB. */
const DELTA_CHARS_MAX = 131_072;

export async function* eventsOfText(
  answer: Text,
  options: TextOptions & { readonly threadId: string },
): AsyncGenerator<{ readonly type: string; readonly [member: string]: string }, void, undefined> {
  const { threadId, role = "assistant" } = options;
  const { runId = crypto.randomUUID(), messageId = crypto.randomUUID() } = options;
  yield { type: "RUN_STARTED", threadId, runId };
  yield { type: "TEXT_MESSAGE_START", messageId, role };
  try {
    // An empty piece has no content, and older AG-UI clients refuse it.
    for await (const delta of piecesOf(answer))
      if (delta !== "") yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
  } catch (error) {
    yield { type: "RUN_ERROR", message: textOf(error) };
    return;
  }
  yield { type: "TEXT_MESSAGE_END", messageId };
  yield { type: "RUN_FINISHED", threadId, runId };
}

async function* piecesOf(answer: Text): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const decoded = (bytes?: Uint8Array): string => {
    try {
      return decoder.decode(bytes, { stream: bytes !== undefined });
    } catch (cause) {
      throw new Error("the text is not UTF-8", { cause });
    }
  };
  for await (const piece of typeof answer === "string" ? [answer] : answer)
    yield* shortened(typeof piece === "string" ? piece : decoded(piece));
  yield decoded();
}

function* shortened(text: string): Generator<string, void, undefined> {
  for (let start = 0; start < text.length; ) {
    const end = start + DELTA_CHARS_MAX;
    const isInPair = /[\uD800-\uDBFF]/.test(text[end - 1] ?? "") && end < text.length;
    yield text.slice(start, isInPair ? end - 1 : end);
    start = isInPair ? end - 1 : end;
  }
}
