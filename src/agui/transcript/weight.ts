/**
 * What a JSON value weighs: about the bytes of its text, cheap to count and the same every time, so
 * that what was added can be taken off again.
 */
import { isObject } from "../json.ts";

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
  return typeof key === "number" ? 1 : key.length + 4;
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

interface Walk {
  readonly tally: { bytes: number; depth: number };
  readonly level: number;
}

function copied(value: unknown, { tally, level }: Walk): unknown {
  if (!isContainer(value)) {
    tally.bytes += leafBytes(value);
    return value;
  }
  tally.bytes += 2;
  tally.depth = Math.max(tally.depth, level);
  const below = { tally, level: level + 1 };
  if (Array.isArray(value)) {
    tally.bytes += value.length;
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
  tally.bytes += 2;
  tally.depth = Math.max(tally.depth, level);
  const below = { tally, level: level + 1 };
  if (Array.isArray(value)) {
    tally.bytes += value.length;
    for (const item of value) weigh(item, below);
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    tally.bytes += entryBytes(key);
    weigh(item, below);
  }
}

function isContainer(
  value: unknown,
): value is readonly unknown[] | Readonly<Record<string, unknown>> {
  return Array.isArray(value) || isObject(value);
}

function leafBytes(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  return typeof value === "number" ? 8 : 4;
}
