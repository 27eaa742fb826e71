/** Activities: messages whose content is an object, set by snapshots and changed by JSON Patches. */
import type { JsonObject } from "../json.ts";
import type { Message } from "./message-list.ts";
import { Patched } from "./patched.ts";
import { attribution, type Reduction, textOf } from "./reduction.ts";

/** Metadata stays through a snapshot; the subagent an activity belongs to comes with each anew. */
export function applyActivitySnapshot({ list, metadata }: Reduction, event: JsonObject): void {
  const id = textOf(event, "messageId");
  if (id === undefined) return;
  const { activityType, content, replace } = event;
  const isReplacing = replace === undefined || replace === null || replace === true;
  const entry = list.find(id);
  const opened = { id, role: "activity", activityType, content, ...attribution(event) };
  if (entry === undefined) {
    metadata.gather(list.push(opened).message, event);
  } else if (entry.message["role"] === "activity") {
    if (isReplacing) list.replace(entry, replaced(entry.message, event));
    metadata.gather(entry.message, event);
  } else if (isReplacing) {
    list.replace(entry, opened);
    metadata.gather(opened, event);
  }
}

/** A patch that fails, or makes more of the content than may be, leaves it; metadata comes anyway. */
export function applyActivityDelta(reduction: Reduction, event: JsonObject): void {
  const { list, metadata, patchedLimits } = reduction;
  const entry = list.find(event["messageId"]);
  if (entry === undefined || entry.message["role"] !== "activity") return;
  const { message } = entry;
  metadata.gather(message, event);
  entry.content ??= new Patched(message["content"] ?? {}, patchedLimits);
  if (entry.content.apply(event["patch"] ?? []) !== "applied") return;
  message["content"] = entry.content.value;
  message["activityType"] = event["activityType"];
}

function replaced(message: Message, event: JsonObject): Message {
  const { subagentRunId: _, ...rest } = message;
  const { activityType, content } = event;
  return { ...rest, activityType, content, ...attribution(event) };
}
