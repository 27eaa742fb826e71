/**
 * What a JSON value weighs: about the bytes of memory that it takes, cheap to count and the same every
 * time, so that what was added can be taken off again. Its text says little of that: `{},` has 3
 * characters and takes 64 bytes.
 *
 * Held against the heap of V8 over lists of one kind of item (test/unit/agui-weight.test.ts): objects
 * that have a shape of their own each weigh 0.7 of what they take, everything else as much or more. A
 * character is 2 bytes, which it is in a text beyond Latin-1; that also bounds the JSON text, where a
 * character takes 6 (`\u0001`) at most.
 */
import { isObject } from "../../agui/json.ts";

/** A value that shares nothing with the one it was copied from. */
export interface Copy {
  readonly value: unknown;
  readonly bytes: number;
  /** Levels of containers; 0 for what is none. */
  readonly depth: number;
}

export function copyOf(value: unknown): Copy {
  const tally = { bytes: 0, depth: 0 };
  return { value: copied(value, { tally, level: 1 }), ...tally };
}

export function weightOf(value: unknown): Omit<Copy, "value"> {
  const tally = { bytes: 0, depth: 0 };
  weigh(value, { tally, level: 1 });
  return tally;
}

/** What a container weighs more with this entry in it, the value of the entry aside. */
export function entryBytes(key: string | number): number {
  return typeof key === "number" ? ITEM_BYTES : FIELD_BYTES + charBytes(key.length);
}

/** What so many characters more weigh in a text that is there. */
export function charBytes(count: number): number {
  return count * 2;
}

/** What the object weighs more when the field has another value; undefined: it has no such field. */
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

interface Walk {
  readonly tally: { bytes: number; depth: number };
  readonly level: number;
}

function copied(value: unknown, { tally, level }: Walk): unknown {
  if (!isContainer(value)) {
    tally.bytes += leafBytes(value);
    return value;
  }
  tally.bytes += containerBytes(value);
  tally.depth = Math.max(tally.depth, level);
  const below = { tally, level: level + 1 };
  if (Array.isArray(value)) {
    return value.map((item) => copied(item, below));
  }
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    tally.bytes += entryBytes(key);
    setOwn(copy, key, copied(item, below));
  }
  return copy;
}

function weigh(value: unknown, { tally, level }: Walk): void {
  if (!isContainer(value)) {
    tally.bytes += leafBytes(value);
    return;
  }
  tally.bytes += containerBytes(value);
  tally.depth = Math.max(tally.depth, level);
  const below = { tally, level: level + 1 };
  if (Array.isArray(value)) {
    for (const item of value) weigh(item, below);
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    // What JSON leaves out is as good as not there.
    if (item === undefined) continue;
    tally.bytes += entryBytes(key);
    weigh(item, below);
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
  return typeof value === "number" ? NUMBER_BYTES : 0;
}
