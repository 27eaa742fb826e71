/** JSON Pointers (RFC 6901) into a value, read as fast-json-patch reads them. */
import { isObject } from "../json.ts";

type Holder = unknown[] | Record<string, unknown>;

/** An entry of a list or an object; it may be absent. */
export interface Place {
  readonly holder: Holder;
  /** A string for an object, an index for a list. */
  readonly key: string | number;
  readonly exists: boolean;
  readonly held: unknown;
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
 * Undefined when no entry can be there, or when the path reaches a prototype. `mustBeNamedPlainly`:
 * every level but the last must exist under the exact name in the pointer ("01" names the second
 * item of a list only without this check).
 */
export function locate(
  root: unknown,
  segments: readonly string[],
  { mustBeNamedPlainly }: { readonly mustBeNamedPlainly: boolean } = { mustBeNamedPlainly: false },
): Place | undefined {
  let holder = root;
  for (const [index, segment] of segments.entries()) {
    if (isOfPrototype(segments, index) || !isHolder(holder)) return undefined;
    const key = Array.isArray(holder) ? indexOf(holder, segment) : segment;
    if (key === undefined) return undefined;
    const exists = Reflect.get(holder, segment) !== undefined;
    const held: unknown = Reflect.get(holder, key);
    if (index === segments.length - 1) return { holder, key, exists, held, level: index + 1 };
    if (mustBeNamedPlainly && !exists) return undefined;
    holder = held;
  }
  return undefined;
}

/**
 * The same for the target of a moved value, which the clients do not check again. Undefined when
 * the move fails, "nowhere" when it succeeds and stores nothing.
 */
export function reach(
  root: unknown,
  segments: readonly string[],
): Pick<Place, "holder" | "key"> | "nowhere" | undefined {
  let holder = root;
  for (const [index, segment] of segments.entries()) {
    if (holder === undefined || holder === null) return undefined;
    const isLast = index === segments.length - 1;
    if (!isHolder(holder)) {
      if (isLast) return "nowhere";
      return undefined;
    }
    const key = Array.isArray(holder) ? indexOf(holder, segment) : segment;
    if (isLast) return key === undefined ? "nowhere" : { holder, key };
    if (key === undefined) return undefined;
    holder = Reflect.get(holder, key);
  }
  return undefined;
}

export function valueAt({ held }: Place): unknown {
  return held;
}

interface Done {
  readonly undo: () => void;
  /** The value that the new value replaces. */
  readonly replaced: { readonly value: unknown } | undefined;
}

/** Inserts before the item in a list, and replaces the value in an object. */
export function put(holder: Holder, key: string | number, value: unknown): Done {
  if (Array.isArray(holder)) {
    const before = holder.length;
    const index = Number(key);
    holder.splice(index, 0, value);
    // The place used by splice: a negative place counts from the end, and one after the end is the
    // end.
    const at = index < 0 ? Math.max(0, before + index) : Math.min(index, before);
    return { undo: () => holder.splice(at, 1), replaced: undefined };
  }
  const name = String(key);
  if (!Object.hasOwn(holder, name)) {
    holder[name] = value;
    return { undo: () => Reflect.deleteProperty(holder, name), replaced: undefined };
  }
  const old = holder[name];
  holder[name] = value;
  return {
    undo: () => {
      holder[name] = old;
    },
    replaced: { value: old },
  };
}

/** Removes an entry. The undo puts it back; in an object, after all others. */
export function take(holder: Holder, key: string | number): () => void {
  if (Array.isArray(holder)) {
    const index = Number(key);
    const removed: unknown[] = holder.splice(index, 1);
    return () => holder.splice(index, 0, ...removed);
  }
  const name = String(key);
  const old = holder[name];
  Reflect.deleteProperty(holder, name);
  return () => {
    holder[name] = old;
  };
}

function isOfPrototype(segments: readonly string[], index: number): boolean {
  const segment = segments[index];
  if (segment === "__proto__") return true;
  return segment === "prototype" && segments[index - 1] === "constructor";
}

function isHolder(value: unknown): value is Holder {
  return Array.isArray(value) || isObject(value);
}

/** Accepts digits only, also an empty string; folded into 32 bits as fast-json-patch does. */
function indexOf(list: readonly unknown[], segment: string): number | undefined {
  if (segment === "-") return list.length;
  return /^\d*$/.test(segment) ? Number(segment) | 0 : undefined;
}
