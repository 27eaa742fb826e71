/**
 * A conversation as Markdown (CommonMark). Headings outside of quotes and fences come only from
 * this code. Messages are quoted, and rendered as the Markdown they mostly are. Tool arguments and
 * results are fenced, with more backticks than they contain. HTML is shown and not rendered,
 * because an open comment or tag would swallow the following text in any context.
 */
import type { JsonObject } from "../../agui/json.ts";
import { oneLine, type Piece, printable, readable } from "./readable.ts";

export function transcriptMarkdown(messages: readonly JsonObject[]): string {
  return readable(messages)
    .flatMap(({ who, of, pieces }) => [
      of === undefined ? `## ${who}` : `## ${who} (${code(of)})`,
      ...pieces.map(written),
    ])
    .map((block) => `${block}\n`)
    .join("\n");
}

function written(piece: Piece): string {
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
  // Markdown strips the spaces again; without them a backtick at the edge would belong to the
  // fence.
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

/**
 * The fence that a line certainly opens. A fence at the very beginning of a line cannot belong to a
 * list, which would end it early. HTML in an unrecognised fence looks escaped, and is safe.
 */
function opening(line: string): string | undefined {
  return /^(`{3,})[^`]*$/.exec(line)?.[1] ?? /^(~{3,})/.exec(line)?.[1];
}

function isClosing(line: string, fence: string): boolean {
  const closing = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line)?.[1];
  return closing?.startsWith(fence) === true;
}

/**
 * Escapes characters that could open a tag, a comment or a declaration. It uses an entity, because
 * a backslash may stand before the character.
 */
function withoutHtml(line: string): string {
  return line.replaceAll(/<(?=[a-z/!?])/gi, "&lt;");
}

function longestRun(text: string): number {
  return [...text.matchAll(/`+/g)].reduce((longest, [run]) => Math.max(longest, run.length), 0);
}
