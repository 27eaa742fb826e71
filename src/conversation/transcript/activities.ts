/** Activities: messages whose content is an object, set by snapshots and changed by JSON Patches. */
import { isObject, type JsonObject } from "../../agui/json.ts";
import type { Entry, Message } from "./message-list.ts";
import { Patched } from "./patched.ts";
import { attribution, type Reduction, textOf } from "./reduction.ts";
import { changedBytes, entryBytes, weightOf } from "./weight.ts";

/** Metadata stays through a snapshot; each snapshot sets the activity's subagent again. */
export function applyActivitySnapshot({ list, metadata }: Reduction, event: JsonObject): void {
  const id = textOf(event, "messageId");
  if (id === undefined) return;
  const { activityType, content, replace } = event;
  const isReplacing = replace === undefined || replace === null || replace === true;
  const entry = list.find(id);
  const opened = { id, role: "activity", activityType, content, ...attribution(event) };
  if (entry === undefined) {
    const pushed = list.push(opened);
    list.grow(pushed, metadata.gather(pushed.message, event));
  } else if (entry.message["role"] === "activity") {
    if (isReplacing) replaceActivity({ list }, entry, event);
    list.grow(entry, metadata.gather(entry.message, event));
  } else if (isReplacing) {
    list.replace(entry, opened);
    list.grow(entry, metadata.gather(opened, event));
  }
}

/**
 * A patch that fails, or makes the content too large, leaves the content; metadata is applied
 * anyway.
 */
export function applyActivityDelta(reduction: Reduction, event: JsonObject): void {
  const { list, metadata, patchedLimits } = reduction;
  const entry = list.find(event["messageId"]);
  if (entry === undefined || entry.message["role"] !== "activity") return;
  const { message } = entry;
  list.grow(entry, metadata.gather(message, event));
  const { content } = message;
  entry.content ??= new Patched(content ?? {}, patchedLimits);
  const known = entry.content.bytes;
  const outcome = entry.content.apply(event["patch"] ?? []);
  const { bytes } = entry.content;
  // A failed patch may also have copied the content. The copy then replaces the original, or both
  // would stay in memory.
  if (outcome !== "applied" && !isObject(content) && !Array.isArray(content)) return;
  message["content"] = entry.content.value;
  if (bytes !== undefined) list.grow(entry, bytes - (known ?? weightOf(content).bytes));
  if (content === undefined) list.grow(entry, entryBytes("content"));
  if (outcome !== "applied") return;
  const { activityType } = event;
  list.grow(
    entry,
    changedBytes("activityType", { before: message["activityType"], after: activityType }),
  );
  message["activityType"] = activityType;
}

/** Only changes are weighed: metadata that stays may have any length. */
function replaceActivity({ list }: Pick<Reduction, "list">, entry: Entry, event: JsonObject): void {
  const { message: before } = entry;
  const after = replaced(before, event);
  const bytes = (["activityType", "content", "subagentRunId"] as const)
    .map((field) => changedBytes(field, { before: before[field], after: after[field] }))
    .reduce((sum, changed) => sum + changed, entry.bytes);
  list.replace(entry, after, bytes);
}

function replaced(message: Message, event: JsonObject): Message {
  const { subagentRunId: _, ...rest } = message;
  const { activityType, content } = event;
  return { ...rest, activityType, content, ...attribution(event) };
}
