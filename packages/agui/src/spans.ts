/**
 * The positions of values in a JSON text, so that a payload is edited without printing it again.
 * All functions take text that JSON.parse has accepted, and an offset where a value begins, so they
 * check no grammar. On other text the results are meaningless, but each walk ends.
 */
export interface TextSpan {
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

/** One `"key": value` of an object. */
export interface Member {
  /** As JSON.parse reads it: `"message\u005fid"` is `message_id`. */
  readonly key: string;
  /** The key with its quotes. */
  readonly keySpan: TextSpan;
  readonly valueSpan: TextSpan;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const SPACE = 0x20;

/** The members of the object that begins at `at`, in order, repeated keys included. */
export function memberSpans(text: string, at = 0): readonly Member[] {
  const members: Member[] = [];
  let next = skipSpace(text, skipSpace(text, at) + 1);
  while (next < text.length && text.charCodeAt(next) === QUOTE) {
    const keySpan = { start: next, end: endOfString(text, next) };
    const valueStart = skipSpace(text, skipSpace(text, keySpan.end) + 1); // After the colon.
    const valueSpan = { start: valueStart, end: endOfValue(text, valueStart) };
    members.push({ key: readKey(text, keySpan), keySpan, valueSpan });
    next = skipSpace(text, skipSpace(text, valueSpan.end) + 1); // After the comma, or the brace.
  }
  return members;
}

/** The elements of the array that begins at `at`, in order. */
export function elementSpans(text: string, at = 0): readonly TextSpan[] {
  const elements: TextSpan[] = [];
  let next = skipSpace(text, skipSpace(text, at) + 1);
  if (text.charCodeAt(next) === CLOSE_BRACKET) return elements;
  while (next < text.length) {
    const end = endOfValue(text, next);
    elements.push({ start: next, end });
    const separator = skipSpace(text, end);
    if (text.charCodeAt(separator) !== COMMA) break;
    next = skipSpace(text, separator + 1);
  }
  return elements;
}

interface Outline {
  /** The nesting of objects and arrays, with the outermost one. */
  readonly depth: number;
  /** Commas between the members, or elements, of the outermost value. */
  readonly commas: number;
  /** The count of `{`, `[` and `,` outside of strings. */
  readonly marks: number;
}

/** One pass over the whole text, which allocates only its result. */
export function outline(text: string): Outline {
  let level = 0;
  let depth = 0;
  let commas = 0;
  let marks = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) {
      at = endOfString(text, at) - 1;
    } else if (unit === OPEN_BRACE || unit === OPEN_BRACKET) {
      marks += 1;
      level += 1;
      if (level > depth) depth = level;
    } else if (unit === CLOSE_BRACE || unit === CLOSE_BRACKET) {
      level -= 1;
    } else if (unit === COMMA) {
      marks += 1;
      if (level === 1) commas += 1;
    }
  }
  return { depth, commas, marks };
}

/** Puts a short text in the place of each object and list that is nested deeper than `levelsMax`. */
export function cutNesting(text: string, levelsMax: number): { text: string; count: number } {
  const edits: Edit[] = [];
  let level = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) {
      at = endOfString(text, at) - 1;
    } else if (unit === OPEN_BRACE || unit === OPEN_BRACKET) {
      level += 1;
      if (level <= levelsMax) continue;
      const end = endOfContainer(text, at);
      edits.push({ start: at, end, text: unit === OPEN_BRACE ? '"{…}"' : '"[…]"' });
      at = end - 1;
      level -= 1;
    } else if (unit === CLOSE_BRACE || unit === CLOSE_BRACKET) {
      level -= 1;
    }
  }
  return { text: edits.length === 0 ? text : applyEdits(text, edits), count: edits.length };
}

export function readKey(text: string, span: TextSpan): string {
  const raw = text.slice(span.start + 1, span.end - 1);
  return raw.includes("\\") ? String(JSON.parse(`"${raw}"`)) : raw;
}

function skipSpace(text: string, at: number): number {
  let next = at;
  // JSON's four white-space characters are the only units up to U+0020 between two tokens.
  while (next < text.length && text.charCodeAt(next) <= SPACE) next += 1;
  return next;
}

/** The place after the closing quote of the string whose opening quote is at `at`. */
export function endOfString(text: string, at: number): number {
  let quote = text.indexOf('"', at + 1);
  while (quote !== -1) {
    let backslashes = 0;
    while (text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return quote + 1;
    quote = text.indexOf('"', quote + 1);
  }
  return text.length;
}

function endOfValue(text: string, at: number): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return endOfString(text, at);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return endOfContainer(text, at);
  let end = at + 1;
  while (end < text.length && !endsLiteral(text.charCodeAt(end))) end += 1;
  return end;
}

function endsLiteral(unit: number): boolean {
  return unit <= SPACE || unit === COMMA || unit === CLOSE_BRACE || unit === CLOSE_BRACKET;
}

function endOfContainer(text: string, at: number): number {
  let level = 0;
  for (let next = at; next < text.length; next += 1) {
    const unit = text.charCodeAt(next);
    if (unit === QUOTE) {
      next = endOfString(text, next) - 1;
    } else if (unit === OPEN_BRACE || unit === OPEN_BRACKET) {
      level += 1;
    } else if (unit === CLOSE_BRACE || unit === CLOSE_BRACKET) {
      level -= 1;
      if (level === 0) return next + 1;
    }
  }
  return text.length;
}

/** Text that replaces a span; the edits of one text do not overlap. */
export interface Edit extends TextSpan {
  readonly text: string;
}

/** Edits come in any order. */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  let result = "";
  let copied = 0;
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    result += text.slice(copied, edit.start) + edit.text;
    copied = edit.end;
  }
  return result + text.slice(copied);
}

/** Removes members from an object, each with one of the commas around it. */
export function dropEdits(members: readonly Member[], isDropped: readonly boolean[]): Edit[] {
  const edits: Edit[] = [];
  const lastIndexKept = isDropped.lastIndexOf(false);
  members.forEach(({ keySpan }, index) => {
    const next = members[index + 1]; // A member is removed with the comma after it, …
    if (isDropped[index] === true && index < lastIndexKept && next !== undefined)
      edits.push({ start: keySpan.start, end: next.keySpan.start, text: "" });
  });
  const last = members.at(-1); // … and members at the end with the comma before the first of them.
  const start = members[lastIndexKept]?.valueSpan.end ?? members[0]?.keySpan.start;
  if (last !== undefined && start !== undefined && lastIndexKept < members.length - 1)
    edits.push({ start, end: last.valueSpan.end, text: "" });
  return edits;
}
