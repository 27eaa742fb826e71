/**
 * A message as a person reads it, independent of the output format: the speaker, and the pieces.
 * Content that is not text (pictures, files, the content of an activity) is named and not shown.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";

export interface Readable {
  /** A word for the role. */
  readonly who: string;
  /** The name of the user, of the called tool, or of the activity, if the message has one. */
  readonly of: string | undefined;
  readonly pieces: readonly Piece[];
}

export type Piece =
  /** Text that a person or a model said. */
  | { readonly kind: "prose"; readonly text: string }
  /** The result of a tool. */
  | { readonly kind: "output"; readonly text: string }
  | { readonly kind: "call"; readonly name: string; readonly arguments: string }
  /** `what` is a word of ours, `detail` is text from the message. */
  | { readonly kind: "note"; readonly what: string; readonly detail: string | undefined };

const ROLES: Readonly<Record<string, string>> = {
  activity: "Activity",
  assistant: "Assistant",
  developer: "Developer",
  reasoning: "Reasoning",
  system: "System",
  tool: "Tool result",
  user: "User",
};

/** Longer than any name or address that a person reads. */
const LINE_CHARACTERS_MAX = 200;

export function readable(messages: readonly JsonObject[]): readonly Readable[] {
  const toolNames = new Map<unknown, string>();
  for (const { id, name } of messages.flatMap(callsOf)) toolNames.set(id, name);
  return messages.map((message) => ({
    who: roleOf(message),
    of: ownerOf(message, toolNames),
    pieces: piecesOf(message),
  }));
}

/**
 * Ends lines with LF only, and leaves nothing that moves a cursor, rings a bell or changes colours:
 * control characters are replaced by their pictures.
 */
export function printable(text: string): string {
  return text
    .toWellFormed()
    .replaceAll(/\r\n?|[\v\f\u0085\u2028\u2029]/g, "\n")
    .replaceAll(/(?![\t\n])\p{Cc}/gu, pictureOf);
}

function pictureOf(control: string): string {
  const code = control.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

/** For a heading, or the middle of a line. */
export function oneLine(text: string): string {
  const line = printable(text).replaceAll(/\s+/g, " ").trim();
  return line.length <= LINE_CHARACTERS_MAX
    ? line
    : `${line.slice(0, LINE_CHARACTERS_MAX)}…`.toWellFormed();
}

function roleOf({ role }: JsonObject): string {
  const known = typeof role === "string" && Object.hasOwn(ROLES, role) ? ROLES[role] : undefined;
  return known ?? "Message";
}

function ownerOf(
  { role, name, toolCallId, activityType }: JsonObject,
  toolNames: ReadonlyMap<unknown, string>,
): string | undefined {
  const owner = { tool: toolNames.get(toolCallId), activity: activityType };
  const named = role === "tool" || role === "activity" ? owner[role] : name;
  return typeof named === "string" && named !== "" ? named : undefined;
}

function piecesOf(message: JsonObject): readonly Piece[] {
  const { role, content, error, encryptedValue } = message;
  const pieces: Piece[] = [];
  const kind = role === "tool" ? "output" : "prose";
  if (typeof content === "string" && content !== "") pieces.push({ kind, text: content });
  if (Array.isArray(content)) pieces.push(...content.map((part) => partPiece(part, kind)));
  if (typeof error === "string") pieces.push({ kind: "note", what: "error", detail: error });
  for (const call of callsOf(message)) pieces.push({ kind: "call", ...call });
  if (pieces.length > 0) return pieces;
  if (typeof encryptedValue === "string")
    return [{ kind: "note", what: "encrypted", detail: undefined }];
  const isShown = role === "activity" && isObject(content);
  return [{ kind: "note", what: isShown ? "not text" : "empty", detail: undefined }];
}

function partPiece(part: unknown, kind: "prose" | "output"): Piece {
  if (!isObject(part)) return { kind: "note", what: "not text", detail: undefined };
  if (typeof part["text"] === "string") return { kind, text: part["text"] };
  const source = isObject(part["source"]) ? part["source"] : {};
  const address = source["type"] === "url" ? source["value"] : part["url"];
  const details = [source["mimeType"], part["mimeType"], part["filename"], address];
  const detail = [part["type"], ...details].filter((one) => typeof one === "string" && one !== "");
  return {
    kind: "note",
    what: "not text",
    detail: detail.length === 0 ? undefined : detail.join(", "),
  };
}

function callsOf({ toolCalls }: JsonObject): readonly {
  readonly id: unknown;
  readonly name: string;
  readonly arguments: string;
}[] {
  if (!Array.isArray(toolCalls)) return [];
  return toolCalls.filter(isObject).map(({ id, function: called }) => {
    const { name, arguments: given } = isObject(called) ? called : {};
    return { id, name: stringOf(name), arguments: stringOf(given) };
  });
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
