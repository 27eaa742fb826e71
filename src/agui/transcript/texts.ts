/** Messages that come as text: START, CONTENT and END, of an answer and of reasoning alike. */
import type { JsonObject } from "../json.ts";
import type { Message } from "./message-list.ts";
import { attribution, type Reduction, textOf } from "./reduction.ts";

export function startText(reduction: Reduction, event: JsonObject): void {
  const { role = "assistant", name } = event;
  const named = name === undefined ? {} : { name };
  start(reduction, event, { role, content: "", ...named, ...attribution(event) });
}

export function startReasoning(reduction: Reduction, event: JsonObject): void {
  start(reduction, event, { role: "reasoning", content: "", ...attribution(event) });
}

/** What is not text there (the parts of a user's message) gives way to it. */
export function addText({ list, metadata }: Reduction, event: JsonObject): void {
  const message = textMessage({ list }, event);
  const delta = textOf(event, "delta");
  if (message === undefined || delta === undefined) return;
  const { content } = message;
  message["content"] = typeof content === "string" ? content + delta : delta;
  metadata.gather(message, event);
}

export function endText({ list, metadata }: Reduction, event: JsonObject): void {
  const message = textMessage({ list }, event);
  if (message !== undefined) metadata.gather(message, event);
}

/** A message that is there keeps what it has: a tool call may have opened it, or an earlier run. */
function start({ list, metadata }: Reduction, event: JsonObject, opened: Message): void {
  const id = textOf(event, "messageId");
  if (id === undefined) return;
  const known = list.find(id)?.message;
  if (known?.["role"] === "activity") return;
  metadata.gather(known ?? list.push({ id, ...opened }).message, event);
}

/** An activity's content is no text, and stays as it is when a text comes under its id. */
function textMessage({ list }: Pick<Reduction, "list">, event: JsonObject): Message | undefined {
  const message = list.find(event["messageId"])?.message;
  return message?.["role"] === "activity" ? undefined : message;
}
