/**
 * Scans one text in pieces of any size, and decides which of its units belong to a secret.
 *
 *   … the ke│y is ghp_│Ab3kQ…            │ where a piece ends
 *   ────────┴─────────┘└──┘
 *     known: stays      not known before 36 characters of the class have come, or another one
 *
 * After a prefix there is a candidate, which the following units extend, prove, or end. Among
 * candidates in the same part of the same secret only the oldest is kept: a younger one has fewer
 * units, ends at the same place, and would mask less. So there are at most as many candidates as
 * parts of patterns, and a unit costs a bounded number of steps in any text.
 *
 * When the answer cannot wait, `letGo` masks the undecided units: a wrong mask is a nuisance, and a
 * leaked secret stays leaked. The candidate stays, so that its following units are masked too.
 */
import { type Automaton, type CompiledSecret, isIn, START } from "./automaton.ts";

/** Units of a text, counted from its beginning. */
interface Range {
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

export type Found = (kind: string) => void;

interface Candidate {
  readonly secret: CompiledSecret;
  part: number;
  /** The number of units of the part's joint so far. */
  jointUnits: number;
  /** The number of units of the part's class so far. */
  units: number;
  dashes: number;
  /** The first unit to mask, once there is one. */
  from: number;
  isProven: boolean;
  isCounted: boolean;
}

const NOWHERE = -1;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const DASH = 0x2d;
const SPACE = 0x20;
/** In no class, no prefix and no word: a wrong spelling is no character. */
const NO_UNIT = 0xffff;

export class TextScan {
  readonly #automaton: Automaton;
  readonly #found: Found;
  #state = START;
  #position = 0;
  #live: Candidate[] = [];
  /** Units before it are decided, whatever follows them. */
  #letGoAt = 0;
  /** In order, with gaps between them. */
  #masked: { from: number; to: number }[] = [];

  constructor(automaton: Automaton, found: Found) {
    this.#automaton = automaton;
    this.#found = found;
  }

  /** The number of units read so far. */
  get position(): number {
    return this.#position;
  }

  get masked(): readonly Range[] {
    return this.#masked;
  }

  /** True when a possible secret has begun. */
  get isLive(): boolean {
    return this.#live.length > 0;
  }

  /** True when the next units are masked the same way after any text. */
  get isAtRest(): boolean {
    return this.#live.length === 0 && this.#automaton.rests.has(this.#state);
  }

  /** Up to here the masks are decided. */
  get settled(): number {
    const held = this.#automaton.held.get(this.#state) ?? 0;
    let settled = Math.max(this.#letGoAt, this.#position - held);
    for (const { isProven, from } of this.#live)
      if (!isProven && from !== NOWHERE && from < settled) settled = from;
    return settled;
  }

  /** Reads plain text. */
  readPlain(text: string): void {
    for (let at = 0; at < text.length; ) {
      if (this.#live.length === 0) at = this.#pass(text, at, NO_UNIT);
      if (at < text.length) this.#step(text.charCodeAt(at++));
    }
  }

  /** Reads the body of a JSON string to its closing quote, and returns its place, or to the end. */
  readSpelled(text: string, start: number): number {
    let at = start;
    while (at < text.length) {
      if (this.#live.length === 0) at = this.#pass(text, at, QUOTE);
      const unit = text.charCodeAt(at);
      if (unit === QUOTE || at >= text.length) break;
      if (unit === BACKSLASH) {
        const escape = readEscape(text, at);
        at += escape.length;
        this.#step(escape.unit);
      } else {
        at += 1;
        // A raw control character is invalid in a string, so it must not count as a character.
        this.#step(unit < SPACE ? NO_UNIT : unit);
      }
    }
    return at;
  }

  /** Reads a unit between two strings of a JSON text: a name and its value may be two strings. */
  readBetween(unit: number): void {
    this.#live = this.#live.filter((one) => {
      const { isGap, has } = one.secret.parts[one.part] ?? NO_PART;
      if (!isGap || !isIn(has, unit)) return false;
      one.units += 1;
      return true;
    });
  }

  /** The string ends, but the JSON text continues: pending masks are done, or will never come. */
  endString(): void {
    this.#state = START;
    if (this.#live.length === 0) return;
    this.#live = this.#live.filter(({ secret, part }) => secret.parts[part]?.isGap === true);
  }

  /** An unproved candidate is no secret. */
  end(): void {
    this.#state = START;
    if (this.#live.length > 0) this.#live = [];
  }

  letGo(): void {
    this.#letGoOfHeld();
    for (const one of this.#live) {
      if (one.isProven || one.from === NOWHERE || one.from === this.#position) continue;
      this.#mask(one.from, this.#position);
      this.#count(one);
      one.from = this.#position;
    }
  }

  /** The larger part of a whole secret is masked; the rest of it may follow. */
  #letGoOfHeld(): void {
    const likely = this.#automaton.likely.get(this.#state) ?? 0;
    if (likely > 0 && this.#letGoAt < this.#position)
      this.#mask(this.#position - likely, this.#position);
    this.#letGoAt = this.#position;
  }

  /** Ranges that end before this number are not needed any more. */
  forget(before: number): void {
    while ((this.#masked[0]?.to ?? before + 1) <= before) this.#masked.shift();
  }

  /** Another scan that begins with this text and continues alone; the masks stay here. */
  goOn(): TextScan {
    const other = new TextScan(this.#automaton, this.#found);
    other.#state = this.#state;
    other.#position = this.#position;
    other.#letGoAt = this.#letGoAt;
    other.#live = this.#live.map((one) => ({ ...one }));
    return other;
  }

  restart(): void {
    this.end();
    if (this.#masked.length > 0) this.#masked = [];
    this.#position = 0;
    this.#letGoAt = 0;
  }

  /** Skips text in which nothing begins; stops at the end, at `stop`, and before a step. */
  #pass(text: string, start: number, stop: number): number {
    const { next, columns } = this.#automaton;
    let state = this.#state;
    let at = start;
    for (; at < text.length; at += 1) {
      const unit = text.charCodeAt(at);
      if (unit === stop || unit < SPACE || unit === BACKSLASH) break;
      const entered = next[state + (columns[unit] ?? 0)] ?? START;
      if (entered < 0) break; // #step handles this unit.
      state = entered;
    }
    this.#state = state;
    this.#position += at - start;
    return at;
  }

  #step(unit: number): void {
    if (this.#live.length > 0) this.#feed(unit);
    this.#position += 1;
    const { next, columns, begins } = this.#automaton;
    const entered = next[this.#state + (columns[unit] ?? 0)] ?? START;
    this.#state = entered < 0 ? ~entered : entered;
    if (entered < 0) for (const secret of begins.get(this.#state) ?? NONE) this.#begin(secret);
  }

  #begin(secret: CompiledSecret): void {
    if (secret.units > 0) {
      this.#mask(this.#position - secret.units, this.#position);
      this.#found(secret.kind);
      return;
    }
    if (this.#live.some((one) => one.secret === secret && one.part === 0)) return;
    const counts = { part: 0, jointUnits: 0, units: 0, dashes: 0, from: NOWHERE };
    this.#live.push({ secret, ...counts, isProven: false, isCounted: false });
  }

  #feed(unit: number): void {
    const live = this.#live;
    let kept = 0;
    for (let at = 0; at < live.length; at += 1) {
      const one = live[at];
      if (one === undefined || !this.#goesOn(one, unit, kept)) continue;
      live[kept] = one;
      kept += 1;
    }
    live.length = kept;
  }

  /** `older`: the number of live candidates that are older, and have taken the unit already. */
  #goesOn(one: Candidate, unit: number, older: number): boolean {
    const part = one.secret.parts[one.part] ?? NO_PART;
    if (one.jointUnits < part.joint.length) {
      if (part.joint[one.jointUnits] !== unit) return false;
      one.jointUnits += 1;
      this.#cover(one);
      return true;
    }
    if (isIn(part.has, unit)) {
      one.units += 1;
      one.dashes = 0;
      if (part.isGap) return true;
      this.#cover(one);
      const isLast = one.part === one.secret.parts.length - 1;
      if (isLast && one.units >= part.least) this.#prove(one);
      else one.from = Math.max(one.from, this.#position + 1 - part.window);
      return true;
    }
    if (unit === DASH && part.dashes > 0) {
      one.dashes += 1;
      return one.dashes < part.dashes;
    }
    if (one.units < part.least || one.part + 1 === one.secret.parts.length) return false;
    one.part += 1;
    one.jointUnits = 0;
    one.units = 0;
    for (let at = 0; at < older; at += 1) {
      const other = this.#live[at];
      if (other?.secret === one.secret && other.part === one.part) return false;
    }
    return this.#goesOn(one, unit, older);
  }

  #cover(one: Candidate): void {
    if (one.from === NOWHERE) one.from = this.#position;
    if (one.isProven) this.#mask(this.#position, this.#position + 1);
  }

  #prove(one: Candidate): void {
    if (one.isProven) return;
    if (!this.#live.some(({ isProven }) => isProven)) this.#count(one);
    one.isProven = true;
    this.#mask(one.from, this.#position + 1);
  }

  #count(one: Candidate): void {
    if (!one.isCounted) this.#found(one.secret.kind);
    one.isCounted = true;
  }

  #mask(from: number, to: number): void {
    const masked = this.#masked;
    let last = masked.at(-1);
    while (last !== undefined && last.from >= from) {
      masked.pop();
      to = Math.max(to, last.to);
      last = masked.at(-1);
    }
    if (last !== undefined && last.to >= from) last.to = Math.max(last.to, to);
    else masked.push({ from, to });
  }
}

const NONE: readonly never[] = [];
const NO_PART: CompiledSecret["parts"][number] = {
  joint: [],
  has: new Uint8Array(0),
  least: 0,
  window: 0,
  isGap: false,
  dashes: 0,
};

const LETTER_U = 0x75;

const SHORT: ReadonlyMap<string, number> = new Map(
  Object.entries({
    '"': '"',
    "\\": "\\",
    "/": "/",
    b: "\b",
    f: "\f",
    n: "\n",
    r: "\r",
    t: "\t",
  }).map(([letter, character]) => [letter, character.charCodeAt(0)]),
);

/**
 * The units of the body of a JSON string, from its spelling. Text that is not JSON is read to its
 * end too.
 *
 * The escape whose backslash is at `at`: the unit that it stands for, and the length of its
 * spelling.
 */
function readEscape(text: string, at: number): { readonly unit: number; readonly length: number } {
  if (text.charCodeAt(at + 1) !== LETTER_U)
    return { unit: SHORT.get(text.charAt(at + 1)) ?? NO_UNIT, length: 2 };
  const digits = text.slice(at + 2, at + 6);
  if (!/^[0-9A-Fa-f]{4}$/.test(digits)) return { unit: NO_UNIT, length: 2 };
  return { unit: Number.parseInt(digits, 16), length: 6 };
}

/** Puts a `*` in the place of each unit of the ranges, which are in order. */
export function maskPlain(text: string, ranges: readonly Range[]): string {
  let result = "";
  let copied = 0;
  for (const { from, to } of ranges) {
    result += text.slice(copied, from) + "*".repeat(to - from);
    copied = to;
  }
  return result + text.slice(copied);
}

/** For the body of a JSON string, in its spelling; its first unit has the number `first`. */
export function maskSpelled(spelled: string, ranges: readonly Range[], first: number): string {
  let result = "";
  let copied = 0;
  let unit = first;
  let range = 0;
  for (let at = 0; at < spelled.length; unit += 1) {
    const isEscape = spelled.charCodeAt(at) === BACKSLASH;
    const end = at + (isEscape ? readEscape(spelled, at).length : 1);
    while ((ranges[range]?.to ?? Number.POSITIVE_INFINITY) <= unit) range += 1;
    if ((ranges[range]?.from ?? Number.POSITIVE_INFINITY) <= unit) {
      result += `${spelled.slice(copied, at)}*`;
      copied = end;
    }
    at = end;
  }
  return result + spelled.slice(copied);
}
