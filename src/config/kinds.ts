/** The kinds of settings: the texts that each accepts, and the values that it makes of them. */
import { durationMs } from "../base/duration.ts";

export interface Kind<T> {
  /** Completes "expected …". */
  readonly expected: string;
  /** Undefined when the text is not what was expected. */
  readonly parse: (text: string) => T | undefined;
  /** Only for a kind that may hold a secret: the part of a valid text that may be shown. */
  readonly publicPart?: (text: string) => string;
}

/**
 * One setting of the environment: its variable, its kind, and its default. The table of all settings
 * (table.ts) is the source of the parser, of `--help` and of docs/operations.md, so the three always
 * agree.
 */
export interface Setting<T> extends Kind<T> {
  readonly name: string;
  /** The default text of the variable; undefined where an absent variable has a meaning. */
  readonly fallback: string | undefined;
  /** Sentences for the operator. */
  readonly meaning: string;
}

export function setting<T>(name: string, kind: Kind<T>, fallback: string): Described<T> {
  return { means: (meaning) => ({ ...kind, name, fallback, meaning }) };
}

/** A setting without a default: an absent value has a meaning. */
export function optional<T>(name: string, kind: Kind<T>): Described<T | undefined> {
  return { means: (meaning) => ({ ...kind, name, fallback: undefined, meaning }) };
}

interface Described<T> {
  readonly means: (meaning: string) => Setting<T>;
}

export function choice<const T extends string>(...among: readonly T[]): Kind<T> {
  return {
    expected: `one of ${among.join(", ")}`,
    parse: (text) => among.find((one) => one === text),
  };
}

/** One or more of a few words, separated by commas. */
export function list(among: string): Kind<readonly string[]> {
  const known = wordsIn(among);
  return {
    expected: `some of ${among}, separated by commas`,
    parse(text) {
      const words = wordsIn(text);
      return words.every((word) => known.includes(word)) ? words : undefined;
    },
  };
}

function wordsIn(text: string): readonly string[] {
  return text.split(",").map((word) => word.trim());
}

/** A whole number; the unit is the end of the variable's name. */
export function amount(min: number, max: number): Kind<number> {
  return {
    expected: `a whole number from ${min} to ${max}`,
    parse(text) {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    },
  };
}

/** A span of time as people write it: `30s`, `10m`, `30d`; the value is in milliseconds. */
export function duration(min: string, max: string): Kind<number> {
  const [minMs, maxMs] = [msIn(min), msIn(max)];
  return {
    expected: `a number and ms, s, m, h or d, from ${min} to ${max}`,
    parse(text) {
      const ms = msIn(text);
      return ms >= minMs && ms <= maxMs ? ms : undefined;
    },
  };
}

function msIn(text: string): number {
  return durationMs(text) ?? Number.NaN;
}

export function textOf(expected: string): Kind<string> {
  return { expected, parse: (text) => text };
}

/** A text that no log and no error may show. */
export function secretText(expected: string): Kind<string> {
  return { ...textOf(expected), publicPart: () => "set" };
}
