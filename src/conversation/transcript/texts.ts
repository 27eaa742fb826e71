/** Messages that arrive as text: START, CONTENT and END, of an answer and of reasoning alike. */
import type { JsonObject } from "../../agui/json.ts";
import type { Entry, Message } from "./message-list.ts";
import { attribution, type Reduction, textOf } from "./reduction.ts";
import { changedBytes } from "./weight.ts";

export function startText(reduction: Reduction, event: JsonObject): void {
  const { role = "assistant", name } = event;
  const named = name === undefined ? {} : { name };
  start(reduction, event, { role, content: "", ...named, ...attribution(event) });
}

export function startReasoning(reduction: Reduction, event: JsonObject): void {
  start(reduction, event, { role: "reasoning", content: "", ...attribution(event) });
}

/** Content that is not text (the parts of a user's message) is replaced by the text. */
export function addText({ list, metadata }: Reduction, event: JsonObject): void {
  const entry = textEntry({ list }, event);
  const delta = textOf(event, "delta");
  if (entry === undefined || delta === undefined) return;
  const { message } = entry;
  const { content } = message;
  if (typeof content === "string") {
    message["content"] = content + delta;
    list.growText(entry, delta.length);
  } else {
    message["content"] = delta;
    list.grow(entry, changedBytes("content", { before: content, after: delta }));
  }
  list.grow(entry, metadata.gather(message, event));
}

export function endText({ list, metadata }: Reduction, event: JsonObject): void {
  const entry = textEntry({ list }, event);
  if (entry !== undefined) list.grow(entry, metadata.gather(entry.message, event));
}

/** An existing message keeps its fields: a tool call may have opened it, or an earlier run. */
function start({ list, metadata }: Reduction, event: JsonObject, opened: Message): void {
  const id = textOf(event, "messageId");
  if (id === undefined) return;
  const known = list.find(id);
  if (known?.message["role"] === "activity") return;
  const entry = known ?? list.push({ id, ...opened });
  list.grow(entry, metadata.gather(entry.message, event));
}

/** An activity's content is not text, and stays when a text arrives under its id. */
function textEntry({ list }: Pick<Reduction, "list">, event: JsonObject): Entry | undefined {
  const entry = list.find(event["messageId"]);
  return entry?.message["role"] === "activity" ? undefined : entry;
}
