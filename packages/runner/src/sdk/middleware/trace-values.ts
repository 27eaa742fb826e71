/** Values of events as attributes of spans. Pure. */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { printJson } from "@session-ledger/agui/print";
import { sumOf, type ModelUsage, usageIn } from "@session-ledger/agui/run-end";
import type { AgentEvent, AgentMessage } from "../bridge.ts";

/** The longest attribute: a collector refuses an export of some MiB. */
const CHARS_MAX = 65_536;

/** A text that comes in pieces, up to the length of an attribute. */
export class BoundedText {
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
    return printJson(value).text;
  } catch {
    return undefined;
  }
}

/** The last user message, and its sender. */
export function lastUserText(messages: readonly AgentMessage[]): {
  readonly text: string;
  readonly userId: string;
} {
  const last = messages.findLast(({ role }) => role === "user");
  const metadata = isObject(last?.["metadata"]) ? last["metadata"] : {};
  const { sender_context: sender } = metadata;
  const userId = isObject(sender) ? sender["sender_id"] : "";
  return { text: printed(last?.["content"]), userId: typeof userId === "string" ? userId : "" };
}

/** From the end of a run: the model, if it was one, the tokens, and the outcome. */
export function finishOf(end: AgentEvent): {
  readonly model: string;
  readonly usage: JsonObject | undefined;
  readonly outcome: string;
} {
  const { outcome } = end;
  const entries = usageIn(end);
  const models = new Set(entries.map(({ model }) => model));
  const [model] = models.size === 1 ? models : [];
  const kind = isObject(outcome) ? outcome["type"] : outcome;
  return {
    model: model ?? "",
    usage: entries.length === 0 ? undefined : detailsOf(entries),
    outcome: typeof kind === "string" ? kind : "",
  };
}

/** Langfuse adds all kinds of input, and all of output; AG-UI's counts contain their parts. */
function detailsOf(entries: readonly ModelUsage[]): JsonObject {
  const sum = (name: Parameters<typeof sumOf>[1]): number => sumOf(entries, name) ?? 0;
  const cached = sum("cachedInput");
  const written = sum("cacheWriteInput");
  const reasoning = sum("reasoning");
  const input = sum("input");
  const output = sum("output");
  return {
    input: Math.max(0, input - cached - written),
    output: Math.max(0, output - reasoning),
    total: sum("total") || input + output,
    ...(cached > 0 && { input_cached_tokens: cached }),
    ...(written > 0 && { input_cache_creation: written }),
    ...(reasoning > 0 && { output_reasoning_tokens: reasoning }),
  };
}
