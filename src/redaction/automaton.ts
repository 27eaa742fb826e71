/**
 * Finds all prefixes at once: a table gives, for each state and each character, the next state, and
 * for some states the prefixes that are complete there. A state stands for the prefixes that the
 * last characters may begin, and for whether a word continues. So a character costs one look-up in
 * the table, after any text. The table is made once, when the service starts.
 */
import type { Part, Secret } from "./patterns.ts";

interface CompiledPart {
  readonly joint: readonly number[];
  readonly has: CharClass;
  readonly least: number;
  readonly window: number;
  readonly isGap: boolean;
  readonly dashes: number;
}

export interface CompiledSecret {
  readonly kind: string;
  /** Of a whole secret: the number of its units, which are masked. */
  readonly units: number;
  readonly parts: readonly CompiledPart[];
}

/** A state is the number of its row in the table, times the width of a row. */
export interface Automaton {
  /** By state and column: the next state, or its complement where a secret may begin. */
  readonly next: Int32Array;
  /** The column of each unit. */
  readonly columns: Uint8Array;
  /** The secrets that may begin where a state is entered, one each. */
  readonly begins: ReadonlyMap<number, readonly CompiledSecret[]>;
  /** States with no prefix in progress, and no escape. */
  readonly rests: ReadonlySet<number>;
  /** By state: the number of the last units that may begin a whole secret. */
  readonly held: ReadonlyMap<number, number>;
  /** The same, where they are the larger part of it. */
  readonly likely: ReadonlyMap<number, number>;
}

/**
 * Fewer units are never held back: words begin like secrets, and every wait delays a reader. So where a
 * piece of a text ends in them, the first units of a whole secret may stay visible.
 */
const HELD_UNITS_MIN = 4;

export const START = 0;
const UNITS = 0x10000;

export function compile(secrets: readonly Secret[]): Automaton {
  for (const secret of secrets) assertOneEnds(secret);
  const compiled = secrets.map(({ kind, prefixes, parts }) => ({
    kind,
    units: parts.length === 0 ? (prefixes[0] ?? "").length : 0,
    parts: parts.map(compiledPart),
  }));
  const words: Word[] = secrets.flatMap(({ prefixes, startsWord = false }, secret) =>
    prefixes.map((text) => ({ text, secret, startsWord })),
  );
  const beginning = new Map<string, [number, Word][]>();
  for (const entry of words.entries()) {
    const first = entry[1].text.charAt(0);
    beginning.set(first, [...(beginning.get(first) ?? []), entry]);
  }
  const { columns, width, characterOf } = columnsOf(words);
  const states: State[] = [];
  const numbers = new Map<string, number>();
  const numberOf = (state: State): number => {
    const key = keyOf(state);
    const known = numbers.get(key);
    if (known !== undefined) return known;
    numbers.set(key, states.length);
    return states.push(state) - 1;
  };
  numberOf({ partial: [], complete: [], before: "other" });
  const next: number[] = [];
  for (let at = 0; at < states.length; at += 1) {
    const state = states[at];
    if (state === undefined) break;
    for (let column = 0; column < width; column += 1)
      next.push(numberOf(after(state, characterOf(column), { words, beginning })));
  }
  const begins = new Map<number, readonly CompiledSecret[]>();
  for (const [at, { complete }] of states.entries()) {
    const found = [...new Set(complete)].flatMap((secret) => compiled[secret] ?? []);
    if (found.length > 0) begins.set(at * width, found);
  }
  const entered = next.map((at) => (begins.has(at * width) ? ~(at * width) : at * width));
  const resting = [...states.keys()].filter((at) => {
    const { partial = [], before } = states[at] ?? {};
    return partial.length === 0 && before !== "backslash";
  });
  const rests = new Set(resting.map((at) => at * width));
  const held = new Map<number, number>();
  const likely = new Map<number, number>();
  for (const [at, { partial }] of states.entries())
    for (const [index, units] of partial) {
      const { text, secret } = words[index] ?? NO_WORD;
      if (secrets[secret]?.parts.length !== 0 || units < HELD_UNITS_MIN) continue;
      held.set(at * width, Math.max(units, held.get(at * width) ?? 0));
      if (2 * units <= text.length) continue;
      likely.set(at * width, Math.max(units, likely.get(at * width) ?? 0));
    }
  return { next: Int32Array.from(entered), columns, begins, rests, held, likely };
}

/** Otherwise a candidate could outlive an older one of its secret, which alone is kept. */
function assertOneEnds({ kind, prefixes, parts }: Secret): void {
  if (parts.length === 0 && prefixes.length !== 1)
    throw new RangeError(`${kind}: a whole secret must be one text`);
  const dashes = "-".repeat(parts.at(-1)?.endsAtDashes ?? 0);
  if (!prefixes.every((prefix) => prefix.endsWith(dashes)))
    throw new RangeError(`${kind}: what ends it must end its prefixes`);
}

interface Word {
  readonly text: string;
  readonly secret: number;
  readonly startsWord: boolean;
}

interface Words {
  readonly words: readonly Word[];
  /** Keyed by their first character. */
  readonly beginning: ReadonlyMap<string, readonly (readonly [index: number, word: Word])[]>;
}

const NO_WORDS: readonly never[] = [];
const NO_WORD: Word = { text: "", secret: -1, startsWord: false };

interface State {
  /** Words that have begun, and the number of their units so far. */
  readonly partial: readonly (readonly [word: number, units: number])[];
  /** Secrets with a word that ends here. */
  readonly complete: readonly number[];
  readonly before: "word" | "backslash" | "other";
}

function keyOf({ partial, complete, before }: State): string {
  return `${before} ${partial.join(";")} ${complete.join()}`;
}

function after({ partial, before }: State, character: string, { words, beginning }: Words): State {
  const going: [word: number, units: number][] = [];
  for (const [word, units] of partial)
    if (words[word]?.text.charAt(units) === character) going.push([word, units + 1]);
  for (const [word, { startsWord }] of beginning.get(character) ?? NO_WORDS)
    if (!(startsWord && before === "word")) going.push([word, 1]);
  const isWhole = ([word, units]: readonly [number, number]): boolean =>
    words[word]?.text.length === units;
  return {
    partial: going.filter((one) => !isWhole(one)),
    complete: going.filter(isWhole).flatMap(([word]) => words[word]?.secret ?? []),
    before: kindOf(character, before),
  };
}

/** In JSON inside JSON a line begins after `\n`, whose letter does not belong to the word. */
function kindOf(character: string, before: State["before"]): State["before"] {
  if (character === "\\" && before !== "backslash") return "backslash";
  return before !== "backslash" && /^[A-Za-z0-9]$/.test(character) ? "word" : "other";
}

/** Two more stand for all characters that no word has. */
const COLUMNS_MAX = 254;
const ALPHANUMERIC = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/** Characters of no prefix share two columns: word characters and others. */
function columnsOf(words: readonly Word[]) {
  const own = [...new Set([...words.flatMap(({ text }) => text.split("")), "\\"])];
  const used = new Set(own);
  if (own.length > COLUMNS_MAX)
    throw new RangeError(`more than ${COLUMNS_MAX} different characters`);
  const spare = ALPHANUMERIC.split("").filter((character) => !used.has(character));
  const characters = ["\0", spare[0] ?? "\0", ...own];
  const columns = new Uint8Array(UNITS);
  for (const character of spare) columns[character.charCodeAt(0)] = 1;
  own.forEach((character, at) => (columns[character.charCodeAt(0)] = at + 2));
  const characterOf = (column: number): string => characters[column] ?? "\0";
  return { columns, width: characters.length, characterOf };
}

function compiledPart({ joint = "", characters, least, ...rest }: Part): CompiledPart {
  const has = charClassOf(characters);
  if (has === undefined) throw new RangeError(`${characters} is no class of characters`);
  const { window = Number.POSITIVE_INFINITY, isGap = false, endsAtDashes: dashes = 0 } = rest;
  const units = Array.from(joint, (character) => character.charCodeAt(0));
  return { joint: units, has, least, window, isGap, dashes };
}

/** The ASCII characters of a class, by their codes. */
type CharClass = Uint8Array;

const ASCII = 128;

/** Parses the text between the brackets of a class; undefined when it is invalid. */
export function charClassOf(characters: string): CharClass | undefined {
  const units = unitsOf(characters);
  if (units === undefined) return undefined;
  const has = new Uint8Array(ASCII);
  for (let at = 0; at < units.length; at += 1) {
    const first = units[at];
    const last = units[at + 2];
    if (first === undefined) return undefined;
    const isRange = units[at + 1]?.code === DASH && !units[at + 1]?.isEscaped && last !== undefined;
    if (isRange && last.code < first.code) return undefined;
    has.fill(1, first.code, (isRange ? last.code : first.code) + 1);
    if (isRange) at += 2;
  }
  return units.length > 0 ? has : undefined;
}

const DASH = 0x2d;

interface Unit {
  readonly code: number;
  readonly isEscaped: boolean;
}

/** A backslash makes the next character literal. */
function unitsOf(characters: string): readonly Unit[] | undefined {
  const units: Unit[] = [];
  for (let at = 0; at < characters.length; at += 1) {
    const isEscaped = characters.charAt(at) === "\\";
    if (isEscaped) at += 1;
    const code = characters.charCodeAt(at);
    if (!(code < ASCII)) return undefined; // NaN when no character follows the backslash.
    units.push({ code, isEscaped });
  }
  return units;
}

export function isIn(has: CharClass, unit: number): boolean {
  return unit < ASCII && has[unit] === 1;
}
