/**
 * Feedback on messages: the last one of each user on a message. It is stored apart from the
 * messages, because a MESSAGES_SNAPSHOT of an agent replaces a message without it.
 */
import { isObject, type JsonObject } from "../json.ts";
import { entryBytes, weightOf } from "./weight.ts";

/** A place in a map of a message's feedback, and a part of one in the map of messages. */
const ENTRY_BYTES = 200;

export class FeedbackIndex {
  /** By message and user; the oldest first. */
  readonly #byMessage = new Map<string, Map<string, JsonObject>>();
  #bytes = 0;

  /** The memory it holds, as weight.ts estimates it. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Takes an event that GiveFeedback has stored, as clients get it, and no other. */
  take({ name, value }: JsonObject): void {
    const entry = name === "META" && isObject(value) ? feedbackIn(value) : undefined;
    if (entry === undefined) return;
    const { messageId, feedback } = entry;
    let ofMessage = this.#byMessage.get(messageId);
    if (ofMessage === undefined) {
      ofMessage = new Map();
      this.#byMessage.set(messageId, ofMessage);
      this.#bytes += entryBytes(messageId) + ENTRY_BYTES;
    }
    const before = ofMessage.get(feedback.by);
    if (before !== undefined) this.#bytes -= weightOf(before).bytes + ENTRY_BYTES;
    ofMessage.delete(feedback.by);
    ofMessage.set(feedback.by, feedback);
    this.#bytes += weightOf(feedback).bytes + ENTRY_BYTES;
  }

  /** The messages with their feedback in the metadata. */
  on(messages: readonly JsonObject[]): readonly JsonObject[] {
    if (this.#byMessage.size === 0) return messages;
    return messages.map((message) => {
      const { id } = message;
      const entry = typeof id === "string" ? this.#byMessage.get(id) : undefined;
      return entry === undefined ? message : withFeedback(message, [...entry.values()]);
    });
  }
}

function withFeedback(message: JsonObject, feedback: readonly JsonObject[]): JsonObject {
  const metadata = isObject(message["metadata"]) ? message["metadata"] : {};
  const session = isObject(metadata["session"]) ? metadata["session"] : {};
  return { ...message, metadata: { ...metadata, session: { ...session, feedback } } };
}

/** The form is made by src/handlers/feedback.ts; a META of a producer may have any. */
function feedbackIn({ metaType: kind, payload, metadata }: JsonObject) {
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const stored = isObject(session) ? session["feedback"] : undefined;
  if (!isObject(stored) || !isObject(payload)) return undefined;
  const { by, at } = stored;
  const { messageId, comment, traceId } = payload;
  if (typeof by !== "string" || typeof messageId !== "string") return undefined;
  const more = { comment, at, traceId };
  const entry = Object.entries(more).filter(([, value]) => typeof value === "string");
  return { messageId, feedback: { by, kind, ...Object.fromEntries(entry) } };
}
