/**
 * The feedback of people on messages: of each person, the last one on a message. It is kept beside the
 * messages, because a MESSAGES_SNAPSHOT of an agent replaces a message without it.
 */
import { isObject, type JsonObject } from "../json.ts";
import { entryBytes, weightOf } from "./weight.ts";

/** A place in a map of a message's feedback, and a part of one in the map of messages. */
const ENTRY_BYTES = 200;

export class Feedback {
  /** By message and person; the oldest first. */
  readonly #given = new Map<string, Map<string, JsonObject>>();
  #bytes = 0;

  /** The memory it holds, as weight.ts estimates it. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Takes an event that GiveFeedback has stored, as clients get it, and no other. */
  take({ name, value }: JsonObject): void {
    const given = name === "META" && isObject(value) ? givenIn(value) : undefined;
    if (given === undefined) return;
    const { messageId, feedback } = given;
    let ofMessage = this.#given.get(messageId);
    if (ofMessage === undefined) {
      ofMessage = new Map();
      this.#given.set(messageId, ofMessage);
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
    if (this.#given.size === 0) return messages;
    return messages.map((message) => {
      const { id } = message;
      const given = typeof id === "string" ? this.#given.get(id) : undefined;
      return given === undefined ? message : withFeedback(message, [...given.values()]);
    });
  }
}

function withFeedback(message: JsonObject, feedback: readonly JsonObject[]): JsonObject {
  const metadata = isObject(message["metadata"]) ? message["metadata"] : {};
  const session = isObject(metadata["session"]) ? metadata["session"] : {};
  return { ...message, metadata: { ...metadata, session: { ...session, feedback } } };
}

interface Given {
  readonly messageId: string;
  readonly feedback: JsonObject & { readonly by: string };
}

/** The form is made by api/feedback.ts; a META of a producer may have any. */
function givenIn({ metaType: kind, payload, metadata }: JsonObject): Given | undefined {
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const said = isObject(session) ? session["feedback"] : undefined;
  if (!isObject(said) || !isObject(payload)) return undefined;
  const { by, at } = said;
  const { messageId, comment, traceId } = payload;
  if (typeof by !== "string" || typeof messageId !== "string") return undefined;
  const more = { comment, at, traceId };
  const given = Object.entries(more).filter(([, value]) => typeof value === "string");
  return { messageId, feedback: { by, kind, ...Object.fromEntries(given) } };
}
