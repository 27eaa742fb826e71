/**
 * Removes the values of members of JSON objects with certain names, at any depth. Each value
 * becomes `"***"`, whatever its kind, because its length and kind may be secret too. The member
 * stays, because a state without it cannot take the next patch of it. A null stays, because it
 * contains no secret.
 *
 * A patch has the name in its path: the value of `{"op":"add","path":"/user/password","value":…}`
 * is removed as well. Numbers keep their spelling, and keys their order: values are cut out of the
 * text in one pass, which holds one entry per open object.
 */
import { applyEdits, type Edit, endOfString, readKey, type Span } from "../agui/spans.ts";

export const KEY_KIND = "key";
const IN_ITS_PLACE = '"***"';

/** Names that were normalised before, so that no name is normalised twice in a row. */
const MET_MAX = 1_024;

export interface Keys {
  has(name: string): boolean;
}

/** `apiKey`, `api_key` and `API-Key` are one name. */
export function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, "");
}

export function keysOf(names: readonly string[]): Keys {
  const wanted = new Set(names.map(plainName));
  const met = new Map<string, boolean>();
  return {
    has(name) {
      const known = met.get(name);
      if (known !== undefined) return known;
      if (met.size === MET_MAX) met.clear();
      const isWanted = wanted.has(plainName(name));
      met.set(name, isWanted);
      return isWanted;
    },
  };
}

/** Text that is not JSON may lose any part. */
export function withoutValues(text: string, keys: Keys, found: () => void): string {
  const walk = new Walk(text, keys);
  for (let at = 0; at < text.length; ) at = walk.step(at);
  for (let count = 0; count < walk.edits.length; count += 1) found();
  return walk.edits.length === 0 ? text : applyEdits(text, walk.edits);
}

interface Open {
  readonly isObject: boolean;
  expectsKey: boolean;
  /** The key of the current member. */
  key: string;
  valueStart: number;
  /** True for an operation of a patch. */
  isOperation: boolean;
  isAtName: boolean;
  value: Span | undefined;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const SPACE = 0x20;

class Walk {
  edits: Edit[] = [];
  readonly #text: string;
  readonly #keys: Keys;
  readonly #open: Open[] = [];

  constructor(text: string, keys: Keys) {
    this.#text = text;
    this.#keys = keys;
  }

  /** Reads one token; returns the place of the next one. */
  step(at: number): number {
    const top = this.#open.at(-1);
    const unit = this.#text.charCodeAt(at);
    switch (unit) {
      case OPEN_BRACE:
      case OPEN_BRACKET:
        this.#valueBegins(at);
        this.#open.push(opened(unit === OPEN_BRACE));
        return at + 1;
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        this.#open.pop();
        if (top !== undefined) this.#patched(top);
        this.#valueEnds(at + 1);
        return at + 1;
      case COMMA:
        if (top !== undefined) top.expectsKey = top.isObject;
        return at + 1;
      case QUOTE:
        return this.#string(at, top);
      case COLON:
        return at + 1;
      default:
        return unit <= SPACE ? at + 1 : this.#literal(at);
    }
  }

  #string(at: number, top: Open | undefined): number {
    const end = endOfString(this.#text, at);
    if (top?.expectsKey === true) {
      top.key = this.#read({ start: at, end });
      top.expectsKey = false;
      return end;
    }
    this.#valueBegins(at);
    if (top?.key === "path" && this.#names(this.#read({ start: at, end }))) top.isAtName = true;
    this.#valueEnds(end);
    return end;
  }

  #literal(at: number): number {
    let end = at + 1;
    while (end < this.#text.length && !/[\s,:{}[\]"]/.test(this.#text.charAt(end))) end += 1;
    this.#valueBegins(at);
    this.#valueEnds(end);
    return end;
  }

  #valueBegins(at: number): void {
    const top = this.#open.at(-1);
    if (top !== undefined) top.valueStart = at;
  }

  #valueEnds(end: number): void {
    const top = this.#open.at(-1);
    if (top?.isObject !== true) return;
    const span = { start: top.valueStart, end };
    if (top.key === "op") top.isOperation = true;
    else if (top.key === "value") top.value = span;
    if (this.#keys.has(top.key)) this.#cut(span);
  }

  #patched({ isOperation, isAtName, value }: Open): void {
    if (isOperation && isAtName && value !== undefined) this.#cut(value);
  }

  #cut({ start, end }: Span): void {
    if (this.#text.slice(start, end) === "null") return;
    while ((this.edits.at(-1)?.start ?? -1) >= start) this.edits.pop();
    this.edits.push({ start, end, text: IN_ITS_PLACE });
  }

  /** Whether one of the names in a JSON Pointer is one of the keys. */
  #names(pointer: string): boolean {
    return pointer
      .split("/")
      .some((part) => this.#keys.has(part.replaceAll("~1", "/").replaceAll("~0", "~")));
  }

  #read(span: Span): string {
    try {
      return readKey(this.#text, span);
    } catch {
      return ""; // The text is not JSON: no code will parse it.
    }
  }
}

function opened(isObject: boolean): Open {
  return {
    isObject,
    expectsKey: isObject,
    key: "",
    valueStart: 0,
    isOperation: false,
    isAtName: false,
    value: undefined,
  };
}
