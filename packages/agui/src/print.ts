/**
 * JSON of a value of somebody else's code. `JSON.stringify` throws for a whole value because of one
 * member: a BigInt, a circle, a `toJSON` or getter that throws. And the service refuses a payload that
 * is nested too deep. Here the member is replaced and the rest stays:
 *
 *   a BigInt ─────────────────────► its digits, as a number
 *   a circle ─────────────────────► "[circular]"
 *   code that throws ─────────────► "[cannot be printed]"
 *   an object at level 65 ────────► "{…}", a list: "[…]"
 *
 * Everything else is printed as `JSON.stringify` does, which is tried first: NaN is null, a Date is ISO
 * 8601, a function is left out.
 */
import { JSON_DEPTH_MAX } from "./payload.ts";
import { cutNesting } from "./spans.ts";

export type ReplacedKind = "bigint" | "circular" | "throwing" | "depth";

export interface PrintedJson {
  /** Undefined: the value has no JSON, such as a function. */
  readonly text: string | undefined;
  readonly replaced: ReadonlyMap<ReplacedKind, number>;
}

const NONE: ReadonlyMap<ReplacedKind, number> = new Map();

/** Throws a RangeError above `charsMax` characters, and the errors of the value's own code. */
export function printJson(value: unknown, charsMax = CHARS_MAX): PrintedJson {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    const printer = new PayloadPrinter(charsMax);
    return { text: printer.print(value), replaced: printer.replaced };
  }
  return text === undefined ? { text, replaced: NONE } : withinDepth(text);
}

/** The same for a JSON text: only values that are nested too deep are replaced. */
export function withinDepth(text: string): PrintedJson & { readonly text: string } {
  const { text: cut, count } = cutNesting(text, JSON_DEPTH_MAX);
  return { text: cut, replaced: count === 0 ? NONE : new Map([["depth", count]]) };
}

/** Far above every payload. Without a limit, a value that has itself in many places would never end. */
const CHARS_MAX = 64 * 1_048_576;

class PayloadPrinter {
  readonly replaced = new Map<ReplacedKind, number>();
  /** The objects around the value that is printed. */
  readonly #around = new Set<object>();
  readonly #charsMax: number;
  #chars = 0;

  constructor(charsMax: number) {
    this.#charsMax = charsMax;
  }

  /** Undefined: JSON has no such value. */
  print(given: unknown, key = ""): string | undefined {
    let value: unknown;
    try {
      value = primitiveOf(converted(given, key));
    } catch (error) {
      return this.#failed(error);
    }
    if (typeof value === "object" && value !== null) return this.#structure(value);
    if (typeof value !== "bigint") return this.#count(JSON.stringify(value));
    return this.#count(this.#replaceBy("bigint", String(value)));
  }

  #structure(value: object): string | undefined {
    const isList = Array.isArray(value);
    if (this.#around.has(value)) return this.#replace("circular", "[circular]");
    if (this.#around.size === JSON_DEPTH_MAX) return this.#replace("depth", isList ? "[…]" : "{…}");
    this.#count("{}");
    this.#around.add(value);
    try {
      return isList ? `[${this.#elements(value)}]` : `{${this.#members(value)}}`;
    } catch (error) {
      this.#around.delete(value);
      return this.#failed(error); // A Proxy.
    } finally {
      this.#around.delete(value);
    }
  }

  #elements(list: readonly unknown[]): string {
    const texts: string[] = [];
    for (let at = 0; at < list.length; at += 1)
      texts.push(this.#memberOf(list, String(at)) ?? "null");
    return texts.join();
  }

  #members(value: object): string {
    const texts: string[] = [];
    for (const key of Object.keys(value)) {
      const text = this.#memberOf(value, key);
      if (text !== undefined) texts.push(`${this.#count(JSON.stringify(key))}:${text}`);
    }
    return texts.join();
  }

  #memberOf(value: object, key: string): string | undefined {
    let member: unknown;
    try {
      member = Reflect.get(value, key);
    } catch (error) {
      return this.#failed(error);
    }
    return this.print(member, key);
  }

  #failed(error: unknown): string {
    if (this.#around.size === 0 || error instanceof TooLong) throw error;
    return this.#replace("throwing", "[cannot be printed]");
  }

  #replace(kind: ReplacedKind, text: string): string {
    return this.#count(this.#replaceBy(kind, JSON.stringify(text)));
  }

  #replaceBy(kind: ReplacedKind, json: string): string {
    this.replaced.set(kind, (this.replaced.get(kind) ?? 0) + 1);
    return json;
  }

  #count<T extends string | undefined>(json: T): T {
    this.#chars += (json?.length ?? 0) + 1;
    if (this.#chars > this.#charsMax)
      throw new TooLong(`a value has at most ${this.#charsMax} characters of JSON`);
    return json;
  }
}

class TooLong extends RangeError {}

function converted(value: unknown, key: string): unknown {
  if ((typeof value !== "object" || value === null) && typeof value !== "bigint") return value;
  const convert: unknown = Reflect.get(Object(value), "toJSON");
  return typeof convert === "function" ? Reflect.apply(convert, value, [key]) : value;
}

function primitiveOf(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const kind = Object.prototype.toString.call(value);
  return BOXED.has(kind) ? value.valueOf() : value;
}

const BOXED = new Set(["Number", "String", "Boolean", "BigInt"].map((name) => `[object ${name}]`));
