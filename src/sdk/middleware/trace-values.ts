/** Values of events as attributes of spans. Pure. */
import { isObject, type JsonObject } from "../../agui/json.ts";
import type { AgentEvent, AgentMessage } from "../bridge.ts";

/** The longest attribute: a collector refuses an export of some MiB. */
const CHARS_MAX = 65_536;

/** A text that comes in pieces, up to the length of an attribute. */
export class Text {
  #text = "";
  #isCut = false;

  add(piece: string): void {
    if (this.#text.length + piece.length > CHARS_MAX) this.#isCut = true;
    if (this.#text.length < CHARS_MAX) this.#text += piece;
  }

  get whole(): string {
    return this.#isCut ? cut(this.#text) : this.#text;
  }
}

function cut(text: string): string {
  return `${text.slice(0, CHARS_MAX - 1).toWellFormed()}…`;
}

/** A text as it is, another value as JSON. */
export function printed(value: unknown): string {
  const text = typeof value === "string" ? value : (jsonOf(value) ?? "");
  return text.length > CHARS_MAX ? cut(text) : text;
}

function jsonOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** The last message of a person, and its sender. */
export function lastSaid(messages: readonly AgentMessage[]): {
  readonly text: string;
  readonly userId: string;
} {
  const last = messages.findLast(({ role }) => role === "user");
  const metadata = isObject(last?.["metadata"]) ? last["metadata"] : {};
  const { sender_context: sender } = metadata;
  const userId = isObject(sender) ? sender["sender_id"] : "";
  return { text: printed(last?.["content"]), userId: typeof userId === "string" ? userId : "" };
}

/** What the end of a run says: the model, if it was one, the tokens, and the outcome. */
export function finishOf({ usage, result, outcome }: AgentEvent): {
  readonly model: string;
  readonly usage: JsonObject | undefined;
  readonly outcome: string;
} {
  // Adapters from before AG-UI 1.0.0 have it in the result.
  const old = isObject(result) ? result["usage"] : undefined;
  const entries = [usage ?? old].flat().filter(isObject);
  const models = new Set(entries.map(({ model }) => model));
  const [model] = models.size === 1 ? models : [];
  const kind = isObject(outcome) ? outcome["type"] : outcome;
  return {
    model: typeof model === "string" ? model : "",
    usage: entries.length === 0 ? undefined : detailsOf(entries),
    outcome: typeof kind === "string" ? kind : "",
  };
}

/** Langfuse adds all kinds of input, and all of output; AG-UI's counts contain their parts. */
function detailsOf(entries: readonly JsonObject[]): JsonObject {
  const sum = (camel: string, snake: string): number =>
    entries.reduce((all, entry) => all + (Number(entry[camel] ?? entry[snake]) || 0), 0);
  const cached = sum("cachedInputTokens", "cached_input_tokens");
  const written = sum("cacheWriteInputTokens", "cache_write_input_tokens");
  const reasoning = sum("reasoningTokens", "reasoning_tokens");
  const input = sum("inputTokens", "input_tokens");
  const output = sum("outputTokens", "output_tokens");
  return {
    input: Math.max(0, input - cached - written),
    output: Math.max(0, output - reasoning),
    total: sum("totalTokens", "total_tokens") || input + output,
    ...(cached > 0 && { input_cached_tokens: cached }),
    ...(written > 0 && { input_cache_creation: written }),
    ...(reasoning > 0 && { output_reasoning_tokens: reasoning }),
  };
}
