/**
 * Narrows events for a client of one generation: an event that a client cannot parse ends its
 * stream. Accepted events pass as the stored bytes. Others lose faulty optional fields, or become
 * an equivalent event; one of an unknown type goes out as CUSTOM. A state event without a state is
 * left out. docs/ag-ui.md, "Served", has the table.
 */
import { plainNumber, SpelledNumber } from "../exact-json.ts";
import { isObject, type JsonObject } from "../json.ts";
import { customOf, without } from "../canonical/event.ts";
import { eventSchemas, type Generation, innerSchemas } from "./schemas.ts";
import type { z } from "zod";
export type { Generation } from "./schemas.ts";

/**
 * `protocolVersion` of RunAgentInput: 1.0 and later versions; 0.0.59 does not send the field, and
 * neither did the versions before it, which are therefore served as 0.0.59.
 */
export function generationOf(protocolVersion: string | undefined): Generation {
  return protocolVersion !== undefined && /^[1-9]\d*(\.\d+)+$/.test(protocolVersion)
    ? "1.0.0"
    : "0.0.59";
}

/** The results are JSON texts, one event each. */
export function servedTo(
  generation: Generation,
  { value, text }: { readonly value: JsonObject; readonly text: string | undefined },
): readonly string[] {
  const served = narrowedEvent(generation, value);
  if (served === value) return [text ?? JSON.stringify(value)];
  return served === undefined ? [] : [JSON.stringify(served)];
}

/** Returns the same event when it needs no change; undefined: it is left out. */
function narrowedEvent(generation: Generation, value: JsonObject): JsonObject | undefined {
  const type = String(value["type"]);
  const schemas = eventSchemas(generation, type);
  if (schemas.length > 0) {
    // A null in this field ends a stream on any event, also on types that do not have the field.
    const tagged = isNull(value["subagentRunId"]) ? without(value, "subagentRunId") : value;
    const shaped = SHAPES[type]?.(generation, tagged) ?? tagged;
    // The messages were checked one by one, more strictly than by a schema.
    const checked = withoutMessages(shaped);
    const accepted = withoutFaults(schemas, checked);
    if (accepted === checked) return shaped;
    if (accepted !== undefined) return { ...accepted, ...messagesOf(shaped) };
    if (type === "STATE_SNAPSHOT") return undefined;
  }
  return withoutFaults(eventSchemas(generation, "CUSTOM"), customOf(type, value));
}

/** Clients copy events as JSON, which has null for a number that is not finite. */
function isNull(value: unknown): boolean {
  const number = plainNumber(value);
  return value === null || (typeof number === "number" && !Number.isFinite(number));
}

type Shape = (generation: Generation, value: JsonObject) => JsonObject;

const SHAPES: Readonly<Record<string, Shape>> = {
  RUN_STARTED: (generation, value) => {
    const { input } = value;
    return isObject(input) ? withField(value, "input", narrowedInput(generation, input)) : value;
  },
  RUN_FINISHED: (generation, value) => {
    const { outcome } = value;
    return isObject(outcome)
      ? withField(value, "outcome", narrowedOutcome(generation, outcome))
      : value;
  },
  TOOL_CALL_RESULT: (generation, value) =>
    withField(value, "content", toolContent(generation, value["content"])),
  MESSAGES_SNAPSHOT: (generation, value) =>
    withField(value, "messages", narrowedMessages(generation, value["messages"])),
  CUSTOM: (_, value) => (value["value"] === undefined ? { ...value, value: null } : value),
  RAW: (_, value) => (value["event"] === undefined ? { ...value, event: null } : value),
};

function messagesOf({ input, messages }: JsonObject): JsonObject {
  if (isObject(input)) return { input };
  return Array.isArray(messages) ? { messages } : {};
}

/** Undefined: the generation has no such outcome, and takes a missing one for success. */
function narrowedOutcome(generation: Generation, outcome: JsonObject): JsonObject | undefined {
  const { type, interrupts } = outcome;
  const isEarlier = generation === "0.0.59";
  if (type === "success" && isEarlier && Object.keys(outcome).length > 1) return { type };
  if (type === "cancelled" && isEarlier) return undefined;
  if (type !== "interrupt" || !Array.isArray(interrupts)) return outcome;
  const { interrupt } = innerSchemas(generation);
  const accepted = mapped(interrupts, (one) => withoutFaults(interrupt, one));
  const hasMore = isEarlier && Object.keys(outcome).length > 2;
  if (hasMore) return { type, interrupts: accepted };
  return withField(outcome, "interrupts", accepted);
}

/** Returns the same list when it needs no change. */
function narrowedMessages(generation: Generation, messages: unknown): unknown {
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
  // No schema of 1.0.0 knows a user's message from clients before 1.0.0; see `userParts`.
  const isChecked = role === "user" && Array.isArray(content);
  const checked = isChecked ? { ...narrowed, content: "" } : narrowed;
  const accepted = withoutFaults(schemas.get(role) ?? [], checked);
  if (accepted === checked) return narrowed;
  return accepted && isChecked ? { ...accepted, content: narrowed["content"] } : accepted;
}

/** The content of a tool's result: parts came with 1.0.0; before, the content was text. */
function toolContent(generation: Generation, content: unknown): unknown {
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
    // A client of 1.0.0 replaces `binary` with media; a client of 0.0.59 keeps it.
    if (generation === "0.0.59") return one;
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
function narrowedInput(generation: Generation, input: JsonObject): JsonObject | undefined {
  const schemas = innerSchemas(generation);
  const messages = narrowedMessages(generation, input["messages"]);
  const list = (name: "tools" | "context" | "resume", isRequired: boolean): unknown => {
    const found = input[name];
    if (!Array.isArray(found)) return isRequired ? [] : undefined;
    const inner = name === "tools" ? schemas.tool : schemas[name];
    return mapped(found, (element) => withoutFaults(inner, element));
  };
  // Before 1.0.0 tools and context were required.
  const isRequired = generation === "0.0.59";
  let narrowed = withField(input, "messages", messages);
  narrowed = withField(narrowed, "tools", list("tools", isRequired));
  narrowed = withField(narrowed, "context", list("context", isRequired));
  narrowed = withField(narrowed, "resume", list("resume", false));
  const checked = { ...narrowed, messages: [] };
  const accepted = withoutFaults(schemas.input, checked);
  if (accepted === checked) return narrowed;
  return accepted && { ...accepted, messages: narrowed["messages"] };
}

/** For checks of the rest of the event. */
function withoutMessages(event: JsonObject): JsonObject {
  const { input, messages } = event;
  if (isObject(input)) return without(event, "input");
  return Array.isArray(messages) ? { ...event, messages: [] } : event;
}

/** Removes optional values that schemas reject. The same object: no fault; undefined: no help. */
function withoutFaults(schemas: readonly z.ZodObject[], value: JsonObject): JsonObject | undefined {
  if (schemas.length === 0) return undefined;
  let rest = value;
  for (const schema of schemas) {
    const result = schema.safeParse(plain(rest));
    if (result.success) continue;
    const fields = new Set(result.error.issues.map(({ path }) => String(path[0] ?? "")));
    rest = without(rest, ...fields);
    if (!schema.safeParse(plain(rest)).success) return undefined;
  }
  // The second schema may require a field that the first one drops.
  return rest === value || schemas.every((schema) => schema.safeParse(plain(rest)).success)
    ? rest
    : undefined;
}

/** A schema sees numbers, and no objects in their place. */
function plain(value: JsonObject): JsonObject {
  if (!Object.values(value).some((one) => one instanceof SpelledNumber)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plainNumber(one)]));
}

/** Returns the same list when no item changes; items that become undefined are removed. */
function mapped(
  list: readonly unknown[],
  change: (element: JsonObject) => JsonObject | undefined,
): readonly unknown[] {
  const changed = list.flatMap((element) => {
    const accepted = isObject(element) ? change(element) : undefined;
    return accepted === undefined ? [] : [accepted];
  });
  const isSame =
    changed.length === list.length && changed.every((element, index) => element === list[index]);
  return isSame ? list : changed;
}

/** Returns the same object when it already has the value. */
function withField(object: JsonObject, name: string, value: unknown): JsonObject {
  if (object[name] === value) return object;
  return value === undefined ? without(object, name) : { ...object, [name]: value };
}
