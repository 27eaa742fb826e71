/**
 * A message for display, independent of the output format: the speaker, and the pieces.
 * Content that is not text (pictures, files, the content of an activity) is named and not shown.
 */
import { isObject, type JsonObject } from "../json.ts";

interface Readable {
  /** A word for the role. */
  readonly who: string;
  /** The name of the user, of the called tool, or of the activity, if the message has one. */
  readonly of: string | undefined;
  readonly pieces: readonly ReadablePiece[];
}

type ReadablePiece =
  /** Text of a user or a model. */
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

/** Longer than any real name or address. */
const LINE_CHARACTERS_MAX = 200;

function readable(messages: readonly JsonObject[]): readonly Readable[] {
  const toolNames = new Map<unknown, string>();
  for (const { id, name } of messages.flatMap(callsOf)) toolNames.set(id, name);
  return messages.map((message) => ({
    who: roleOf(message),
    of: ownerOf(message, toolNames),
    pieces: piecesOf(message),
  }));
}

/** Lines end with LF, and pictures replace the control characters, which could move a cursor. */
function printable(text: string): string {
  return text
    .toWellFormed()
    .replaceAll(/\r\n?|[\v\f\u0085\u2028\u2029]/g, "\n")
    .replaceAll(/(?![\t\n])\p{Cc}/gu, pictureOf);
}

function pictureOf(control: string): string {
  const point = control.codePointAt(0) ?? 0;
  if (point < 0x20) return String.fromCodePoint(0x2400 + point);
  return point === 0x7f ? "\u2421" : "\ufffd";
}

/** For a heading, or the middle of a line. */
function oneLine(text: string): string {
  const line = printable(text).replaceAll(/\s+/g, " ").trim();
  return line.length <= LINE_CHARACTERS_MAX
    ? line
    : `${line.slice(0, LINE_CHARACTERS_MAX)}…`.toWellFormed();
}

function roleOf({ role }: JsonObject): string {
  const label = typeof role === "string" && Object.hasOwn(ROLES, role) ? ROLES[role] : undefined;
  return label ?? "Message";
}

/** The texts of a message, without calls and files. */
export function textOfMessage(message: JsonObject): string {
  return piecesOf(message)
    .flatMap((piece) => {
      if (piece.kind === "prose" || piece.kind === "output") return [piece.text];
      return piece.kind === "note" && piece.what === "error" ? [piece.detail ?? ""] : [];
    })
    .join("\n");
}

function ownerOf(
  { role, name, toolCallId, activityType }: JsonObject,
  toolNames: ReadonlyMap<unknown, string>,
): string | undefined {
  const owner = { tool: toolNames.get(toolCallId), activity: activityType };
  const named = role === "tool" || role === "activity" ? owner[role] : name;
  return typeof named === "string" && named !== "" ? named : undefined;
}

function piecesOf(message: JsonObject): readonly ReadablePiece[] {
  const { role, content, error, encryptedValue } = message;
  const pieces: ReadablePiece[] = [];
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

function partPiece(part: unknown, kind: "prose" | "output"): ReadablePiece {
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
    const { name, arguments: args } = isObject(called) ? called : {};
    return { id, name: stringOf(name), arguments: stringOf(args) };
  });
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

const INDENT = "    ";

/** A conversation as text. Messages are indented, so none can imitate another speaker. */
export function transcriptText(messages: readonly JsonObject[]): string {
  return readable(messages)
    .map(({ who, of, pieces }) => {
      const heading = of === undefined ? who : `${who} (${oneLine(of)})`;
      return `${heading}:\n${pieces.map((piece) => indented(textOfPiece(piece))).join("\n")}`;
    })
    .join("\n");
}

function textOfPiece(piece: ReadablePiece): string {
  switch (piece.kind) {
    case "prose":
    case "output":
      return printable(piece.text);
    case "call":
      return `calls ${oneLine(piece.name)}:\n${indented(printable(piece.arguments))}`;
    case "note":
      return piece.detail === undefined
        ? `(${piece.what})`
        : `(${piece.what}: ${oneLine(piece.detail)})`;
  }
}

/** Indents every line, and ends the last one. */
function indented(text: string): string {
  const lines = text.endsWith("\n") ? text.slice(0, -1).split("\n") : text.split("\n");
  return lines.map((line) => (line === "" ? "\n" : `${INDENT}${line}\n`)).join("");
}

/**
 * A conversation as Markdown (CommonMark). Only this code makes headings outside of quotes and
 * fences. Messages are quoted and rendered; arguments and results are fenced, with more backticks
 * than they have. HTML is escaped: an open comment or tag would swallow the following text.
 */
export function transcriptMarkdown(messages: readonly JsonObject[]): string {
  return readable(messages)
    .flatMap(({ who, of, pieces }) => [
      of === undefined ? `## ${who}` : `## ${who} (${code(of)})`,
      ...pieces.map(markdownOfPiece),
    ])
    .map((block) => `${block}\n`)
    .join("\n");
}

function markdownOfPiece(piece: ReadablePiece): string {
  switch (piece.kind) {
    case "prose":
      return quoted(printable(piece.text));
    case "output":
      return fenced(printable(piece.text));
    case "call":
      return `Calls ${code(piece.name)}:\n\n${fenced(printable(piece.arguments))}`;
    case "note":
      return piece.detail === undefined
        ? `*${piece.what}*`
        : `*${piece.what}:* ${code(piece.detail)}`;
  }
}

function code(text: string): string {
  const line = oneLine(text);
  if (line === "") return "*unnamed*";
  const ticks = "`".repeat(longestRun(line) + 1);
  // Markdown strips the spaces; without them an edge backtick would belong to the fence.
  return line.includes("`") ? `${ticks} ${line} ${ticks}` : `${ticks}${line}${ticks}`;
}

function fenced(text: string): string {
  const fence = "`".repeat(Math.max(3, longestRun(text) + 1));
  return `${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

function quoted(text: string): string {
  let fence: string | undefined;
  const lines = text
    .trimEnd()
    .split("\n")
    .map((line) => {
      const wasFenced = fence !== undefined;
      fence = fence === undefined ? opening(line) : isClosing(line, fence) ? undefined : fence;
      const shown = wasFenced || fence !== undefined ? line : withoutHtml(line);
      return shown === "" ? ">" : `> ${shown}`;
    });
  return lines.join("\n");
}

/** The fence of a line. At its very beginning it cannot belong to a list, which would end it. */
function opening(line: string): string | undefined {
  return /^(`{3,})[^`]*$/.exec(line)?.[1] ?? /^(~{3,})/.exec(line)?.[1];
}

function isClosing(line: string, fence: string): boolean {
  const closing = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line)?.[1];
  return closing?.startsWith(fence) === true;
}

/** Escapes what opens a tag or comment, by an entity: a backslash may stand before it. */
function withoutHtml(line: string): string {
  return line.replaceAll(/<(?=[a-z/!?])/gi, "&lt;");
}

function longestRun(text: string): number {
  return [...text.matchAll(/`+/g)].reduce((longest, [run]) => Math.max(longest, run.length), 0);
}
