/**
 * User messages without an event: rows of the message stream. A run may repeat one, in the input of
 * RUN_STARTED or in a MESSAGES_SNAPSHOT; then it belongs to the run and keeps its position. Until
 * then a MESSAGES_SNAPSHOT without it is completed.
 *
 * Some runners assign a new id to a text. So a user's message with an unknown id is the oldest
 * unrepeated message with the same text, and keeps that message's id here and in every later list.
 */
import { isObject, type JsonObject } from "../json.ts";
import { charBytes } from "../transcript/weight.ts";

/**
 * Where a branch leaves the conversation: behind a user message, which is answered again
 * (`metadata.regenerates`), or in front of a user message, which is replaced (`metadata.edits`).
 */
export interface Branch {
  readonly leaves: "behind" | "before";
  readonly messageId: string;
}

/** The content of a message row. */
export interface RowMessages {
  /** Its number among the messages. */
  readonly seq: bigint;
  /** Messages as AG-UI has them, with ids. */
  readonly messages: readonly JsonObject[];
  /** False: an agent's row, which the log repeats if it has events. */
  readonly isFromUser: boolean;
  /** The idempotency key of the push: the id that a page may have given its message. */
  readonly key: string | undefined;
  /** The answers to interrupts, as AG-UI has them. */
  readonly resume: readonly JsonObject[];
  /** The row begins a branch of the conversation. */
  readonly branch?: Branch | undefined;
  /** It answers the question of a graph. */
  readonly answersGraph?: boolean;
  /** The client's id of the request that gave the row; undefined: unknown. */
  readonly requestId?: string | undefined;
}

/** Above these bounds the oldest message counts as repeated, and the oldest new name is forgotten. */
const MESSAGES_MAX = 1_000;
const TEXT_CHARS_MAX = 1_048_576;
const RENAMED_MAX = 10_000;
/** An entry of a map, and the text of an id. */
const ENTRY_BYTES = 200;

export class Repeats {
  /** The unrepeated messages by id, the oldest first. */
  #waiting = new Map<string, JsonObject>();
  #chars = 0;
  /** The id of the message by the id that a run gave it. */
  #renamed = new Map<string, string>();
  #isShared = false;

  clone(): Repeats {
    const copy = new Repeats();
    copy.#waiting = this.#waiting;
    copy.#chars = this.#chars;
    copy.#renamed = this.#renamed;
    copy.#isShared = true;
    this.#isShared = true; // The next write, on either side, makes a copy first.
    return copy;
  }

  /** An estimate of its memory, without the messages, which the transcript counts. */
  get bytes(): number {
    return (this.#waiting.size + this.#renamed.size) * ENTRY_BYTES + charBytes(this.#chars);
  }

  /** No run has repeated the message. */
  isWaiting(id: string): boolean {
    return this.#waiting.has(id);
  }

  /** The message is not in the conversation any more. */
  forget(id: string): void {
    if (!this.#waiting.has(id)) return;
    this.#own();
    this.#remove(id);
  }

  isRenamed(id: string): boolean {
    return this.#renamed.has(id);
  }

  add(message: JsonObject): void {
    this.#own();
    const { id } = message;
    if (typeof id !== "string") return;
    // A client may get a run before the row that the run repeats: the id was no new name.
    this.#renamed.delete(id);
    this.#waiting.set(id, message);
    this.#chars += textOf(message)?.length ?? 0;
    for (const oldest of this.#waiting.keys()) {
      if (this.#waiting.size <= MESSAGES_MAX && this.#chars <= TEXT_CHARS_MAX) return;
      this.#remove(oldest);
    }
  }

  /**
   * The messages that a run has listed, under the ids that they have here; the same list when
   * nothing changes. `isKnown`: the log had a message with this id before.
   */
  listed(messages: readonly unknown[], isKnown: (id: string) => boolean): readonly unknown[] {
    if (this.#waiting.size === 0 && this.#renamed.size === 0) return messages;
    let hasChanged = false;
    const named = messages.map((message) => {
      if (!isObject(message) || typeof message["id"] !== "string") return message;
      const id = this.#nameOf(message, message["id"], isKnown);
      if (id === message["id"]) return message;
      hasChanged = true;
      return { ...message, id };
    });
    return hasChanged ? named : messages;
  }

  /** The unrepeated messages that are not in the list. */
  missingIn(messages: readonly unknown[]): readonly JsonObject[] {
    if (this.#waiting.size === 0) return [];
    const ids = new Set(messages.filter(isObject).map(({ id }) => id));
    return [...this.#waiting].flatMap(([id, message]) => (ids.has(id) ? [] : [message]));
  }

  #nameOf(message: JsonObject, id: string, isKnown: (id: string) => boolean): string {
    const renamed = this.#renamed.get(id);
    if (renamed !== undefined) return renamed;
    if (this.#waiting.has(id)) {
      this.#own();
      this.#remove(id);
      return id;
    }
    const own = isKnown(id) ? undefined : this.#sameText(message);
    if (own === undefined) return id;
    this.rename(id, own);
    return own;
  }

  /** The message that a run gave this id has another one here. */
  rename(id: string, own: string): void {
    this.#own();
    this.#remove(own);
    for (const oldest of this.#renamed.keys()) {
      if (this.#renamed.size < RENAMED_MAX) break;
      this.#renamed.delete(oldest);
    }
    this.#renamed.set(id, own);
  }

  #sameText(message: JsonObject): string | undefined {
    const text = message["role"] === "user" ? textOf(message) : undefined;
    if (text === undefined) return undefined;
    for (const [id, waiting] of this.#waiting) {
      if (waiting["role"] === "user" && textOf(waiting) === text) return id;
    }
    return undefined;
  }

  #remove(id: string): void {
    const message = this.#waiting.get(id);
    if (message === undefined) return;
    this.#chars -= textOf(message)?.length ?? 0;
    this.#waiting.delete(id);
  }

  #own(): void {
    if (!this.#isShared) return;
    this.#waiting = new Map(this.#waiting);
    this.#renamed = new Map(this.#renamed);
    this.#isShared = false;
  }
}

/** Undefined: the content is not only text. */
function textOf({ content }: JsonObject): string | undefined {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return undefined;
  const [part, other] = content as readonly unknown[];
  if (other !== undefined || !isObject(part) || part["type"] !== "text") return undefined;
  return typeof part["text"] === "string" ? part["text"] : undefined;
}
