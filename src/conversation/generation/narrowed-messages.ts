/** Narrows messages to the forms that a generation of clients accepts, one by one. */
import { without } from "../canonical/event.ts";
import { isObject, type JsonObject } from "../../agui/json.ts";
import { mapped, withField, withoutFaults } from "./faults.ts";
import { innerSchemas, type Generation } from "./generation-schemas.ts";

/** Returns the same list when it needs no change. */
export function narrowedMessages(generation: Generation, messages: unknown): unknown {
  if (!Array.isArray(messages)) return messages;
  return mapped(messages, (message) => narrowedMessage(generation, message));
}

function narrowedMessage(generation: Generation, message: JsonObject): JsonObject | undefined {
  const { message: schemas, toolCall } = innerSchemas(generation);
  const { role, content, toolCalls } = message;
  let narrowed = message;
  if (role === "user" && Array.isArray(content))
    narrowed = withField(narrowed, "content", userParts(generation, content));
  if (role === "tool") narrowed = withField(narrowed, "content", toolContent(generation, content));
  if (Array.isArray(toolCalls)) {
    const calls = mapped(toolCalls, (call) => withoutFaults(toolCall, call));
    narrowed = withField(narrowed, "toolCalls", calls);
  }
  // No schema of 1.0.0 knows the parts of a user's message from clients before 1.0.0; see
  // `userParts`.
  const isChecked = role === "user" && Array.isArray(content);
  const checked = isChecked ? { ...narrowed, content: "" } : narrowed;
  const kept = withoutFaults(schemas.get(role) ?? [], checked);
  if (kept === checked) return narrowed;
  return kept && isChecked ? { ...kept, content: narrowed["content"] } : kept;
}

/** The content of a tool's result: parts came with 1.0.0; before, the content was text. */
export function toolContent(generation: Generation, content: unknown): unknown {
  if (!Array.isArray(content)) return content;
  const { part } = innerSchemas(generation);
  if (generation === "1.0.0")
    return mapped(content, (one) => withoutFaults(part.get(one["type"]) ?? [], one));
  const texts = (content as readonly unknown[]).map((one) =>
    isObject(one) && one["type"] === "text" ? one["text"] : undefined,
  );
  const isText = texts.every((text) => typeof text === "string");
  return isText ? texts.join("\n") : JSON.stringify(content);
}

function userParts(generation: Generation, parts: readonly unknown[]): readonly unknown[] {
  const { part } = innerSchemas(generation);
  return mapped(parts, (one) => {
    if (one["type"] !== "binary") return withoutFaults(part.get(one["type"]) ?? [], one);
    // A client of 1.0.0 replaces `binary` with media, so it is replaced here. An older client keeps
    // `binary` as it is, and its schema is the same in all older versions.
    if (generation === "common") return one;
    const media = mediaOf(one);
    return media === undefined || parts.some((other) => isSameMedia(other, media))
      ? undefined
      : media;
  });
}

/** Follows @ag-ui/client 1.0.0, which drops a part that has neither data nor url. */
function mediaOf({ mimeType, data, url, filename }: JsonObject): JsonObject | undefined {
  if (typeof mimeType !== "string") return undefined;
  const kind = ["image", "audio", "video"].find((one) => mimeType.startsWith(`${one}/`));
  const value = [data, url].find((one) => typeof one === "string" && one !== "");
  if (value === undefined) return undefined;
  return {
    type: kind ?? "document",
    source: { type: value === data ? "data" : "url", value, mimeType },
    ...(typeof filename === "string" && filename !== "" && { metadata: { filename } }),
  };
}

/** Producers for both generations send one attachment in both forms. */
function isSameMedia(other: unknown, media: JsonObject): boolean {
  if (!isObject(other) || other["type"] !== media["type"]) return false;
  const { source, metadata } = media;
  if (!isObject(other["source"]) || !isObject(source)) return false;
  const theirs = other["source"];
  if (!["type", "value", "mimeType"].every((field) => theirs[field] === source[field]))
    return false;
  if (!isObject(metadata)) return true;
  const named = other["metadata"];
  return isObject(named) && named["filename"] === metadata["filename"];
}

/** The input of a run, which the run's first event repeats; undefined: it cannot be narrowed. */
export function narrowedInput(generation: Generation, input: JsonObject): JsonObject | undefined {
  const schemas = innerSchemas(generation);
  const messages = narrowedMessages(generation, input["messages"]);
  const list = (name: "tools" | "context" | "resume", isRequired: boolean): unknown => {
    const found = input[name];
    if (!Array.isArray(found)) return isRequired ? [] : undefined;
    const inner = name === "tools" ? schemas.tool : schemas[name];
    return mapped(found, (element) => withoutFaults(inner, element));
  };
  // Before 1.0.0 tools and context had to be there.
  const isRequired = generation === "common";
  let narrowed = withField(input, "messages", messages);
  narrowed = withField(narrowed, "tools", list("tools", isRequired));
  narrowed = withField(narrowed, "context", list("context", isRequired));
  narrowed = withField(narrowed, "resume", list("resume", false));
  const checked = { ...narrowed, messages: [] };
  const kept = withoutFaults(schemas.input, checked);
  if (kept === checked) return narrowed;
  return kept && { ...kept, messages: narrowed["messages"] };
}

/** For checks of the rest of the event. */
export function withoutMessages(event: JsonObject): JsonObject {
  const { input, messages } = event;
  if (isObject(input)) return without(event, "input");
  return Array.isArray(messages) ? { ...event, messages: [] } : event;
}
