/**
 * Translates THINKING_* to REASONING_*, which replaced it: the same events with ids. THINKING_*
 * events carry no id, so at most one thinking is open, with one message in it; each gets an id from
 * its first event.
 */
import type { JsonObject } from "../../agui/json.ts";
import { KINDS } from "./construct-kinds.ts";
import type { Constructs } from "./constructs.ts";
import { without, type Outgoing } from "./event.ts";

const TYPES = [
  "THINKING_START",
  "THINKING_END",
  "THINKING_TEXT_MESSAGE_START",
  "THINKING_TEXT_MESSAGE_CONTENT",
  "THINKING_TEXT_MESSAGE_END",
] as const;

export function thinkingType(type: string): (typeof TYPES)[number] | undefined {
  return TYPES.find((one) => one === type);
}

interface Thought {
  readonly type: (typeof TYPES)[number];
  readonly value: JsonObject;
  /** The id for a construct that the event begins. */
  readonly id: string;
}

const SPAN = KINDS.reasoning;
const MESSAGE = KINDS.reasoning_message;

export class Thinking {
  #spanId: string | undefined;
  #messageId: string | undefined;

  clone(): Thinking {
    const copy = new Thinking();
    copy.#spanId = this.#spanId;
    copy.#messageId = this.#messageId;
    return copy;
  }

  /** A run began or ended. */
  clear(): void {
    this.#spanId = undefined;
    this.#messageId = undefined;
  }

  next(out: Outgoing, constructs: Constructs, { type, value, id }: Thought): void {
    const as = (reasoning: string, messageId: string, fields: JsonObject = {}) => ({
      value: { ...value, type: reasoning, messageId, ...fields },
      text: undefined,
    });
    switch (type) {
      case "THINKING_START": {
        if (this.#spanId !== undefined) constructs.close(out, "reasoning", this.#spanId);
        this.#spanId = id;
        // Reasoning has no title: clients strip the field, and warn each time.
        constructs.start(out, "reasoning", id, {
          value: { ...without(value, "title"), type: SPAN.start, messageId: id },
          text: undefined,
        });
        return;
      }
      case "THINKING_END":
        if (this.#spanId === undefined) return;
        constructs.end(out, "reasoning", this.#spanId, as(SPAN.end, this.#spanId));
        this.#spanId = undefined;
        return;
      case "THINKING_TEXT_MESSAGE_START":
        if (this.#messageId !== undefined)
          constructs.close(out, "reasoning_message", this.#messageId);
        this.#messageId = id;
        constructs.start(out, "reasoning_message", id, as(MESSAGE.start, id, MESSAGE.started));
        return;
      case "THINKING_TEXT_MESSAGE_CONTENT":
        this.#messageId ??= id;
        constructs.fragment(
          out,
          "reasoning_message",
          this.#messageId,
          as(MESSAGE.fragment, this.#messageId),
        );
        return;
      case "THINKING_TEXT_MESSAGE_END":
        if (this.#messageId === undefined) return;
        constructs.end(out, "reasoning_message", this.#messageId, as(MESSAGE.end, this.#messageId));
        this.#messageId = undefined;
        return;
    }
  }
}
