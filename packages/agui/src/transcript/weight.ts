/**
 * The weight of a JSON value: about its bytes of memory, cheap to count and always the same.
 * Against the heap of V8 (packages/agui/test/weight.test.ts), objects with a shape of their own
 * weigh 0.7 of their memory, and all other values as much or more. A character weighs 2 bytes,
 * which also bounds the JSON text, where it takes at most 6 (`\u0001`).
 */
import { SpelledNumber } from "../exact-json.ts";
import { isObject } from "../json.ts";

/** A value that shares nothing with its source. */
interface Copy {
  readonly value: unknown;
  readonly bytes: number;
  /** Levels of containers; 0 for a value that is not a container. */
  readonly depth: number;
}

export function copyOf(value: unknown): Copy {
  const tally = { bytes: 0, depth: 0 };
  return { value: copied(value, tally), ...tally };
}

export function weightOf(value: unknown): Omit<Copy, "value"> {
  const tally = { bytes: 0, depth: 0 };
  weigh(value, tally);
  return tally;
}

/** The additional weight of a container with this entry, without the value of the entry. */
export function entryBytes(key: string | number): number {
  return typeof key === "number" ? ITEM_BYTES : FIELD_BYTES + charBytes(key.length);
}

/** The additional weight of an existing text with that many more characters. */
export function charBytes(count: number): number {
  return count * 2;
}

/** The weight that another value of the field adds; undefined: no such field. */
export function changedBytes(
  field: string,
  { before, after }: { readonly before: unknown; readonly after: unknown },
): number {
  return fieldBytes(field, after) - fieldBytes(field, before);
}

function fieldBytes(field: string, value: unknown): number {
  return value === undefined ? 0 : entryBytes(field) + weightOf(value).bytes;
}

/** Defines it where an assignment would change the prototype instead. */
export function setOwn(target: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== "__proto__") target[key] = value;
  else
    Object.defineProperty(target, key, {
      value,
      configurable: true,
      enumerable: true,
      writable: true,
    });
}

const OBJECT_BYTES = 56;
const LIST_BYTES = 40;
const ITEM_BYTES = 8;
const FIELD_BYTES = 40;
const TEXT_BYTES = 24;
const NUMBER_BYTES = 8;

interface Tally {
  bytes: number;
  depth: number;
}

function copied(value: unknown, tally: Tally, level = 1): unknown {
  if (!isContainer(value)) {
    tally.bytes += leafBytes(value);
    return value;
  }
  tally.bytes += containerBytes(value);
  tally.depth = Math.max(tally.depth, level);
  if (Array.isArray(value)) return value.map((item) => copied(item, tally, level + 1));
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    tally.bytes += entryBytes(key);
    setOwn(copy, key, copied(item, tally, level + 1));
  }
  return copy;
}

function weigh(value: unknown, tally: Tally, level = 1): void {
  if (!isContainer(value)) {
    tally.bytes += leafBytes(value);
    return;
  }
  tally.bytes += containerBytes(value);
  tally.depth = Math.max(tally.depth, level);
  if (Array.isArray(value)) for (const item of value) weigh(item, tally, level + 1);
  else
    for (const [key, item] of Object.entries(value)) {
      if (item === undefined) continue; // JSON leaves this value out, so it does not count.
      tally.bytes += entryBytes(key);
      weigh(item, tally, level + 1);
    }
}

function isContainer(
  value: unknown,
): value is readonly unknown[] | Readonly<Record<string, unknown>> {
  return Array.isArray(value) || isObject(value);
}

/** Without the fields of an object, which are counted one by one. */
function containerBytes(value: readonly unknown[] | Readonly<Record<string, unknown>>): number {
  return Array.isArray(value) ? LIST_BYTES + ITEM_BYTES * value.length : OBJECT_BYTES;
}

function leafBytes(value: unknown): number {
  if (typeof value === "string") return TEXT_BYTES + charBytes(value.length);
  if (value instanceof SpelledNumber) return FIELD_BYTES + leafBytes(value.text);
  return typeof value === "number" ? NUMBER_BYTES : 0;
}
