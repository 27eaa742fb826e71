/**
 * The words of a text, and of a question. Chinese, Japanese and Korean get a word for each
 * character, and for each two neighbours, so they need no extension of the server. Filters are
 * words too, so the index joins them. A mark begins with a character that no text has.
 */

/** Characters of one row; PostgreSQL marks the matches of a page of such rows in milliseconds. */
const PART_CHARS_MAX = 8_000;
/** A longer text, most often the result of a tool, is found by its beginning. */
const TEXT_CHARS_MAX = 32 * PART_CHARS_MAX;

const MARK = "\u0001";
/** Control characters, among them those of marks and highlights; PostgreSQL stores no U+0000. */
const CONTROLS = /(?![\t\n\r])\p{Cc}/gu;
const JOINED_SCRIPTS =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}ー々]+/gu;

type MarkKind = "session" | "project" | "role" | "type";

/** The project has its letter in ledger_store_session_texts too. */
const LETTERS: Readonly<Record<MarkKind, string>> = {
  session: "s",
  project: "p",
  role: "r",
  type: "t",
};

/** A word of an index has at most 2,046 bytes; ids and names of projects have at most 1,024. */
export function markOf(kind: MarkKind, value: string): string {
  return `${MARK}${LETTERS[kind]}${value}`;
}

/** The text as PostgreSQL stores it, without characters that mean something here. */
export function withoutControls(text: string): string {
  return text.toWellFormed().replaceAll(CONTROLS, " ");
}

/** The parts of a text as rows have them; none for a text without a visible character. */
export function partsOf(text: string): readonly string[] {
  const clean = withoutControls(text.slice(0, TEXT_CHARS_MAX));
  if (clean.trim() === "") return [];
  const parts: string[] = [];
  for (let from = 0; from < clean.length; ) {
    const to = from + endOfPart(clean.slice(from, from + PART_CHARS_MAX + 1));
    parts.push(clean.slice(from, to));
    from = to;
  }
  return parts;
}

/** Behind the last space, if any in the second half; never inside a character. */
function endOfPart(rest: string): number {
  if (rest.length <= PART_CHARS_MAX) return rest.length;
  const part = rest.slice(0, PART_CHARS_MAX);
  const space = Math.max(part.lastIndexOf(" "), part.lastIndexOf("\n"));
  if (space > PART_CHARS_MAX / 2) return space + 1;
  return part.isWellFormed() ? PART_CHARS_MAX : PART_CHARS_MAX - 1;
}

const NOT_ASCII = /[^\0-\u007f]/;

/** Letters as they are compared: the locale C knows ASCII only. Undefined: PostgreSQL does it. */
export function comparable(text: string): string | undefined {
  return NOT_ASCII.test(text) ? text.normalize("NFKC").toLowerCase() : undefined;
}

/** The words of the scripts without spaces. */
export function joinedWordsOf(text: string): readonly string[] {
  const words = new Set<string>();
  for (const [run] of text.matchAll(JOINED_SCRIPTS)) {
    const characters = charactersOf(run);
    for (const word of [...characters, ...pairsOf(characters)]) words.add(word);
  }
  return [...words];
}

function charactersOf(run: string): readonly string[] {
  return run.match(/./gu) ?? [];
}

function pairsOf(characters: readonly string[]): readonly string[] {
  return characters.slice(1).map((character, at) => `${characters[at] ?? ""}${character}`);
}

/** A question in two parts, which hold together. */
export interface SearchWords {
  /** For websearch_to_tsquery. */
  readonly plain: string;
  /** A tsquery; empty: nothing. */
  readonly joined: string;
  /** The texts of scripts without spaces, as they were asked for. */
  readonly runs: readonly string[];
}

export function questionOf(text: string): SearchWords {
  const stored = withoutControls(text);
  const clean = comparable(stored) ?? stored;
  const runs: string[] = [];
  const joined: string[] = [];
  for (const { 0: run, index } of clean.matchAll(JOINED_SCRIPTS)) {
    const isRefused = /(?:^|\s)-"?$/.test(clean.slice(0, index));
    const pairs = pairsOf(charactersOf(run));
    const all = allOf(pairs.length === 0 ? [run] : pairs);
    joined.push(isRefused ? `!(${all})` : all);
    if (!isRefused) runs.push(run);
  }
  return { plain: clean.replaceAll(JOINED_SCRIPTS, " "), joined: joined.join(" & "), runs };
}

/** A tsquery that wants all of these words. */
export function allOf(words: readonly string[]): string {
  return words.map(quoted).join(" & ");
}

function quoted(word: string): string {
  return `'${word.replaceAll("\\", String.raw`\\`).replaceAll("'", "''")}'`;
}
