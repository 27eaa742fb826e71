/**
 * The difference between two JSON values, as a list of paths, by one walk over both. Items of arrays of
 * one length are compared by their places. Of arrays of two lengths, equal items at the beginning and
 * the end stay, so an item that was put in front is one added item.
 */
import { isObject } from "@session-ledger/agui/json";

export type Path = readonly (string | number)[];

/** The path of an added or a changed value is its place in `after`, of a removed one in `before`. */
export type Change =
  | { readonly kind: "added"; readonly path: Path; readonly after: unknown }
  | { readonly kind: "removed"; readonly path: Path; readonly before: unknown }
  | {
      readonly kind: "changed";
      readonly path: Path;
      readonly before: unknown;
      readonly after: unknown;
    };

/** An absent value is `undefined`. Inside an object, what was removed comes after the rest. */
export function stateDiff(before: unknown, after: unknown): readonly Change[] {
  const changes: Change[] = [];
  compare(before, after, { path: [], changes });
  return changes;
}

interface Walk {
  readonly path: Path;
  readonly changes: Change[];
}

function compare(before: unknown, after: unknown, walk: Walk): void {
  // Also where both are one object: a state that shares most of its parts is compared at once.
  if (before === after) return;
  const { path, changes } = walk;
  if (before === undefined) changes.push({ kind: "added", path, after });
  else if (after === undefined) changes.push({ kind: "removed", path, before });
  else if (Array.isArray(before) && Array.isArray(after)) compareArrays(before, after, walk);
  else if (isObject(before) && isObject(after)) compareObjects(before, after, walk);
  else changes.push({ kind: "changed", path, before, after });
}

type Objects = Readonly<Record<string, unknown>>;

function compareObjects(before: Objects, after: Objects, { path, changes }: Walk): void {
  for (const key of Object.keys(after)) {
    const old = Object.hasOwn(before, key) ? before[key] : undefined;
    compare(old, after[key], { path: [...path, key], changes });
  }
  for (const key of Object.keys(before)) {
    if (!Object.hasOwn(after, key))
      changes.push({ kind: "removed", path: [...path, key], before: before[key] });
  }
}

type Items = readonly unknown[];

function compareArrays(before: Items, after: Items, { path, changes }: Walk): void {
  const { start, end } = before.length === after.length ? NO_ENDS : equalEnds(before, after);
  const removed = before.length - end;
  const added = after.length - end;
  for (let at = start; at < Math.max(removed, added); at += 1) {
    const walk = { path: [...path, at], changes };
    compare(at < removed ? before[at] : undefined, at < added ? after[at] : undefined, walk);
  }
}

const NO_ENDS = { start: 0, end: 0 };

/** The counts of items that are equal at both ends. */
function equalEnds(before: Items, after: Items): { readonly start: number; readonly end: number } {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && isSame(before[start], after[start])) start += 1;
  let end = 0;
  while (end < shorter - start && isSame(before.at(-1 - end), after.at(-1 - end))) end += 1;
  return { start, end };
}

export function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (Array.isArray(one) && Array.isArray(other))
    return one.length === other.length && one.every((item, at) => isSame(item, other[at]));
  if (!isObject(one) || !isObject(other)) return false;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isSame(one[key], other[key]))
  );
}
