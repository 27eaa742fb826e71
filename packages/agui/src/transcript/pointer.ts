/** JSON Pointers (RFC 6901) into a value, read as fast-json-patch reads them. */
import { isObject } from "../json.ts";

type Container = unknown[] | Record<string, unknown>;

/** An entry of a list or an object; it may be absent. */
export interface PatchTarget {
  readonly container: Container;
  /** A string for an object, an index for a list. */
  readonly key: string | number;
  readonly exists: boolean;
  readonly value: unknown;
  /** Levels from the root; 1 for an entry of the root itself. */
  readonly level: number;
}

/** Undefined: not a pointer. */
export function segmentsOf(pointer: unknown): readonly string[] | undefined {
  if (typeof pointer !== "string") return undefined;
  if (pointer === "") return [];
  if (!pointer.startsWith("/")) return undefined;
  const segments = pointer.slice(1).split("/");
  if (!pointer.includes("~")) return segments;
  return segments.map((segment) => segment.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/**
 * Undefined: no entry can exist, or the path reaches a prototype. `mustBeNamedPlainly`: every level
 * but the last has the exact name of the pointer ("01" is not the second item of a list).
 */
export function locate(
  root: unknown,
  segments: readonly string[],
  { mustBeNamedPlainly }: { readonly mustBeNamedPlainly: boolean } = { mustBeNamedPlainly: false },
): PatchTarget | undefined {
  let container = root;
  for (const [index, segment] of segments.entries()) {
    if (isOfPrototype(segments, index) || !isContainer(container)) return undefined;
    const key = Array.isArray(container) ? indexOf(container, segment) : segment;
    if (key === undefined) return undefined;
    const exists = Reflect.get(container, segment) !== undefined;
    const value: unknown = Reflect.get(container, key);
    if (index === segments.length - 1) return { container, key, exists, value, level: index + 1 };
    if (mustBeNamedPlainly && !exists) return undefined;
    container = value;
  }
  return undefined;
}

/** For the target of a move, which clients do not check again. "nowhere": stores nothing. */
export function reach(
  root: unknown,
  segments: readonly string[],
): Pick<PatchTarget, "container" | "key"> | "nowhere" | undefined {
  let container = root;
  for (const [index, segment] of segments.entries()) {
    if (container === undefined || container === null) return undefined;
    const isLast = index === segments.length - 1;
    if (!isContainer(container)) {
      if (isLast) return "nowhere";
      return undefined;
    }
    const key = Array.isArray(container) ? indexOf(container, segment) : segment;
    if (isLast) return key === undefined ? "nowhere" : { container, key };
    if (key === undefined) return undefined;
    container = Reflect.get(container, key);
  }
  return undefined;
}

export function valueAt({ value }: PatchTarget): unknown {
  return value;
}

interface Done {
  readonly undo: () => void;
  /** The value that the new value replaces. */
  readonly replaced: { readonly value: unknown } | undefined;
}

/** Inserts before the item in a list, and replaces the value in an object. */
export function put(container: Container, key: string | number, value: unknown): Done {
  if (Array.isArray(container)) {
    const before = container.length;
    const index = Number(key);
    container.splice(index, 0, value);
    // As splice counts: a negative index from the end, and one after the end is the end.
    const at = index < 0 ? Math.max(0, before + index) : Math.min(index, before);
    return { undo: () => container.splice(at, 1), replaced: undefined };
  }
  const name = String(key);
  if (!Object.hasOwn(container, name)) {
    container[name] = value;
    return { undo: () => Reflect.deleteProperty(container, name), replaced: undefined };
  }
  const old = container[name];
  container[name] = value;
  return {
    undo: () => {
      container[name] = old;
    },
    replaced: { value: old },
  };
}

/** Removes an entry. The undo puts it back; in an object, after all others. */
export function take(container: Container, key: string | number): () => void {
  if (Array.isArray(container)) {
    const index = Number(key);
    const removed: unknown[] = container.splice(index, 1);
    return () => container.splice(index, 0, ...removed);
  }
  const name = String(key);
  const old = container[name];
  Reflect.deleteProperty(container, name);
  return () => {
    container[name] = old;
  };
}

function isOfPrototype(segments: readonly string[], index: number): boolean {
  const segment = segments[index];
  if (segment === "__proto__") return true;
  return segment === "prototype" && segments[index - 1] === "constructor";
}

function isContainer(value: unknown): value is Container {
  return Array.isArray(value) || isObject(value);
}

/** Accepts digits only, also an empty string; folded into 32 bits as fast-json-patch does. */
function indexOf(list: readonly unknown[], segment: string): number | undefined {
  if (segment === "-") return list.length;
  return /^\d*$/.test(segment) ? Number(segment) | 0 : undefined;
}
