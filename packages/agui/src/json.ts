import { parseExact, SpelledNumber } from "./exact-json.ts";

/** An object as JSON.parse makes it. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** For text that is known to be a JSON object. */
export function parseObject(text: string): JsonObject {
  return objectOf(JSON.parse(text));
}

/** The same, whose numbers keep their spelling. */
export function parseExactObject(text: string): JsonObject {
  return objectOf(parseExact(text));
}

function objectOf(value: unknown): JsonObject {
  if (!isObject(value)) throw new TypeError("not a JSON object");
  return value;
}

/** Undefined when the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function isNothing(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

export function isObject(value: unknown): value is JsonObject {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof SpelledNumber)
  );
}

/** The objects of a list; of any other value none. */
export function objectsIn(list: unknown): readonly JsonObject[] {
  return Array.isArray(list) ? list.filter(isObject) : [];
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The texts of a message's content, which may have parts, joined by line breaks. */
export function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  return objectsIn(content)
    .flatMap(({ text }) => textOf(text) ?? [])
    .join("\n");
}

/** `payload.messages[0].toolCallId`. */
export function pathName(path: readonly PropertyKey[]): string {
  const name = path
    .map((key) => (typeof key === "number" ? `[${key}]` : `.${printedWord(String(key))}`))
    .join("");
  return name.slice(1);
}

/** A caller's word in a form for messages: short, and without control characters. */
export function printedWord(word: string): string {
  return /^\w{1,64}$/.test(word) ? word : JSON.stringify(word.slice(0, 64));
}
