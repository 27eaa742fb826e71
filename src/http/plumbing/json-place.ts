/**
 * Finds the place where a text stops being JSON. V8 names the place for most mistakes, but for an
 * unexpected token it quotes the text instead. Then a binary search finds the place. A prefix that
 * ends before the mistake fails only because it ends too early, and a longer prefix fails because
 * of the mistake. So the search takes as many parses as the length has bits.
 */

/** The longest text that is searched: 17 parses of this size take some milliseconds. */
const LOOKED_FOR_CHARS_MAX = 64 * 1024;

/** For a text that JSON.parse refuses; undefined where the search would cost too much. */
export function placeOfMistake(text: string): string | undefined {
  const told = positionIn(messageOf(text));
  if (told === undefined && text.length > LOOKED_FOR_CHARS_MAX) return undefined;
  const position = told ?? lookFor(text);
  if (position >= text.length) return "it ends too early";
  const lines = text.slice(0, position).split("\n");
  const column = (lines.at(-1)?.length ?? 0) + 1;
  return `at character ${position + 1} (line ${lines.length}, column ${column})`;
}

function lookFor(text: string): number {
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endsTooEarly(text.slice(0, middle + 1))) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A complete prefix counts too: more might follow. */
function endsTooEarly(text: string): boolean {
  const message = messageOf(text);
  if (message === undefined || message === "Unexpected end of JSON input") return true;
  return (positionIn(message) ?? 0) >= text.length;
}

function messageOf(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : "";
  }
}

function positionIn(message: string | undefined): number | undefined {
  const position = / in JSON at position (\d+)| after JSON at position (\d+)/.exec(message ?? "");
  return position === null ? undefined : Number(position[1] ?? position[2]);
}
