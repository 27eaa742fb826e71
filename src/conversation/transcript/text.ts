import type { JsonObject } from "../../agui/json.ts";
import { oneLine, type Piece, printable, readable } from "./readable.ts";

const INDENT = "    ";

/**
 * A conversation as plain text. Only this code starts text at the beginning of a line: messages are
 * indented, so a message cannot imitate another speaker's turn.
 */
export function transcriptText(messages: readonly JsonObject[]): string {
  return readable(messages)
    .map(({ who, of, pieces }) => {
      const heading = of === undefined ? who : `${who} (${oneLine(of)})`;
      return `${heading}:\n${pieces.map((piece) => indented(written(piece))).join("\n")}`;
    })
    .join("\n");
}

function written(piece: Piece): string {
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
