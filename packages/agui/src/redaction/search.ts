/**
 * Finds secrets in a text, or in the next part of a text:
 *
 *   tail of the earlier parts │ next part
 *   … the key is ghp_Ab3k     │ Q9…f and …ghp_x
 *                    └─ open ─┘└──┘           └ pending: fewer than the least length, at the end
 *                                found
 *
 * A secret is a run of characters of one class behind a begin. A begin inside an examined run needs
 * no second look, because its run ends at the same place. So a pattern examines each character
 * once, apart from the search for begins and RUN_CHARS for each of them.
 */
import { type KnownValue, type Pattern, type Secret, TAIL_CHARS } from "./patterns.ts";

/** Characters of a text, counted from its beginning. */
export interface Range {
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** A secret that ends at the end of the text so far. */
export interface OpenSecret {
  readonly pattern: CompiledPattern;
  /** Characters of it so far. */
  readonly chars: number;
}

/** Called with the kind of each secret that was found. */
export type OnFound = (kind: string) => void;

interface Finding extends Range {
  readonly kind: string;
  /** The rest of a secret that was counted with an earlier part. */
  readonly continues?: boolean;
  /** The smaller half of a known value, which is more likely a word. */
  readonly isUnlikely?: boolean;
}

export interface SecretMatches {
  readonly secrets: readonly Finding[];
  /** At the end: perhaps the beginning of a secret. */
  readonly pending: readonly Finding[];
  /** Their next characters belong to a secret, if the pending ones are masked. */
  readonly open: readonly OpenSecret[];
}

const NONE: SecretMatches = { secrets: [], pending: [], open: [] };

interface CompiledPattern extends Pattern {
  readonly beginning: RegExp;
  readonly run: RegExp;
}

/** A run is examined in pieces, because it may end before the last character of its class. */
const RUN_CHARS = 1_024;

/** Shorter beginnings of a known value are not pending, and may stay visible: words begin so. */
const VALUE_CHARS_MIN = 4;

export class SecretSearch {
  readonly #patterns: readonly CompiledPattern[];
  readonly #values: readonly KnownValue[];
  /** Matches every text with a begin. */
  readonly #hint: RegExp;

  constructor(secrets: readonly Secret[]) {
    this.#patterns = secrets.filter((secret) => "begin" in secret).map(compiled);
    this.#values = secrets.filter((secret) => "value" in secret);
    this.#hint = new RegExp(this.#patterns.map(({ begin }) => begin).join("|") || "(?!)");
  }

  /** False: no search finds anything in the text. */
  mayFind(text: string): boolean {
    return this.#hint.test(text) || this.#values.some(({ value }) => text.includes(value));
  }

  /** `start`: the place of the next part; the text before it was searched. */
  search(text: string, start = 0, open: readonly OpenSecret[] = NONE.open): SecretMatches {
    const mayBegin = this.#hint.test(text);
    if (!mayBegin && open.length === 0 && this.#values.length === 0) return NONE;
    const found = { secrets: [], pending: [], open: [] };
    for (const pattern of mayBegin ? this.#patterns : open.map((one) => one.pattern)) {
      const before = open.find((one) => one.pattern === pattern);
      findPattern(pattern, { text, start, before }, found);
    }
    for (const secret of this.#values) findValue(secret, { text, start }, found);
    return found;
  }
}

interface Findings {
  readonly secrets: Finding[];
  readonly pending: Finding[];
  readonly open: OpenSecret[];
}

function findPattern(
  pattern: CompiledPattern,
  {
    text,
    start,
    before,
  }: {
    readonly text: string;
    readonly start: number;
    readonly before: OpenSecret | undefined;
  },
  { secrets, pending, open }: Findings,
): void {
  const { kind, least, beginning, endsAt = "" } = pattern;
  let examined = 0;
  if (before !== undefined) {
    examined = runEnd(pattern, text, start - Math.min(start, before.chars, endsAt.length));
    if (examined > start) secrets.push({ kind, from: start, to: examined, continues: true });
    if (examined === text.length) open.push({ pattern, chars: before.chars + examined - start });
  }
  beginning.lastIndex = 0;
  for (let match = beginning.exec(text); match !== null; match = beginning.exec(text)) {
    const from = beginning.lastIndex;
    beginning.lastIndex = match.index + 1;
    if (from < examined) continue;
    const to = runEnd(pattern, text, from);
    examined = to;
    if (to === from || to <= start) continue;
    const finding = { kind, from: Math.max(from, start), to };
    if (to - from >= least) secrets.push(finding);
    else if (to === text.length) pending.push(finding);
    if (to === text.length) open.push({ pattern, chars: to - from });
  }
}

/** The end of the run that begins at `from`. */
function runEnd({ run, endsAt }: CompiledPattern, text: string, from: number): number {
  let to = from;
  for (run.lastIndex = from; run.test(text); to = run.lastIndex) {
    if (endsAt === undefined) continue;
    const before = Math.max(from, to - endsAt.length);
    const end = text.slice(before, run.lastIndex).indexOf(endsAt);
    if (end !== -1) return before + end;
  }
  return to;
}

function findValue(
  { kind, value }: KnownValue,
  { text, start }: { readonly text: string; readonly start: number },
  { secrets, pending }: Findings,
): void {
  for (let at = text.indexOf(value); at !== -1; at = text.indexOf(value, at + 1)) {
    const to = at + value.length;
    if (to > start) secrets.push({ kind, from: Math.max(at, start), to });
  }
  const head = value.slice(0, VALUE_CHARS_MIN);
  let at = text.indexOf(head, Math.max(0, text.length - value.length + 1));
  while (at !== -1 && !value.startsWith(text.slice(at))) at = text.indexOf(head, at + 1);
  if (at === -1) return;
  const isUnlikely = (text.length - at) * 2 <= value.length;
  pending.push({ kind, from: Math.max(at, start), to: text.length, isUnlikely });
}

function compiled(pattern: Pattern): CompiledPattern {
  return {
    ...pattern,
    beginning: new RegExp(pattern.begin, "g"),
    run: new RegExp(`[${pattern.characters}]{1,${RUN_CHARS}}`, "y"),
  };
}

export interface TextEnd {
  readonly tail: string;
  readonly open: readonly OpenSecret[];
}

export const TEXT_START: TextEnd = { tail: "", open: [] };

/** The masks of the next part of a text, whose end may be masked although it is no secret. */
export function searchNext(search: SecretSearch, { tail, open }: TextEnd, part: string) {
  const text = tail + part;
  const { secrets, pending, open: stillOpen } = search.search(text, tail.length, open);
  const findings = [...secrets, ...pending.filter((one) => one.isUnlikely !== true)].map((one) => ({
    ...one,
    from: one.from - tail.length,
    to: one.to - tail.length,
  }));
  const end: TextEnd = { tail: copyOf(text.slice(-TAIL_CHARS)), open: stillOpen };
  return { findings, isPending: pending.length > 0, end };
}

/** V8 makes a slice a view that keeps the whole text. */
function copyOf(text: string): string {
  return Buffer.from(text, "utf16le").toString("utf16le");
}

/** Puts a `*` in the place of each character of the findings. */
export function maskPlain(text: string, findings: readonly Range[]): string {
  let result = "";
  let copied = 0;
  for (const { from, to } of findings.toSorted((a, b) => a.from - b.from)) {
    if (to <= copied) continue;
    result += text.slice(copied, from) + "*".repeat(to - Math.max(from, copied));
    copied = to;
  }
  return result + text.slice(copied);
}

/** The same for the body of a JSON string in its spelling; an escape is one character. */
export function maskSpelled(spelled: string, findings: readonly Range[]): string {
  if (!spelled.includes("\\")) return maskPlain(spelled, findings);
  const characters: string[] = spelled.match(/\\u[0-9A-Fa-f]{4}|\\[^]|[^]/g) ?? [];
  for (const { from, to } of findings) characters.fill("*", from, to);
  return characters.join("");
}

export function charactersOf(spelled: string): string {
  if (!spelled.includes("\\")) return spelled;
  return spelled.replaceAll(/\\(?:u([0-9A-Fa-f]{4})|([^]))/g, (_all, code?: string, letter = "") =>
    code === undefined
      ? (ESCAPES[letter] ?? NO_CHARACTER)
      : String.fromCharCode(parseInt(code, 16)),
  );
}

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

/** In no class and no begin: a wrong spelling is no character. */
const NO_CHARACTER = "\uFFFF";

/** The kind of each secret, once: two patterns may find the same one. */
export function kindsOf(findings: readonly Finding[]): readonly string[] {
  const kinds: string[] = [];
  let end = -1;
  for (const { kind, from, to, continues } of findings.toSorted((a, b) => a.from - b.from)) {
    if (from >= end && continues !== true) kinds.push(kind);
    end = Math.max(end, to);
  }
  return kinds;
}
