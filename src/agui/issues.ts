/**
 * What a schema has against an event, found without looking at all of a hopeless list. zod makes an
 * issue of every element that is wrong before it returns: a megabyte of `{}` as messages is 350,000 of
 * them, and takes a second in which nobody else is served. So a long list is given to it in parts, and
 * the first part that has an issue is the last.
 */
import type { z } from "zod";
import { isObject, type JsonObject } from "./json.ts";

export type Issue = z.core.$ZodIssue;

/** Elements of a list that are looked at before it is asked whether to go on. */
const PART = 1_000;

/** Nobody reads zod's own messages: to put one together takes longer than to find the issue. */
const UNWORDED = { error: () => "Invalid input" };

/** None: the schema accepts the event. */
export function issuesOf(schema: z.ZodObject, value: JsonObject): readonly Issue[] {
  const long = longList(value);
  if (long === undefined) return schema.safeParse(value, UNWORDED).error?.issues ?? [];
  const { path, list } = long;
  for (let start = 0; start < list.length; start += PART) {
    const part = withList(value, path, list.slice(start, start + PART));
    const { error } = schema.safeParse(part, UNWORDED);
    if (error !== undefined) return error.issues.map((issue) => moved(issue, path, start));
  }
  return [];
}

export function isTakenInParts(value: JsonObject): boolean {
  return longList(value) !== undefined;
}

type ListPath = readonly [string] | readonly [string, string];

interface LongList {
  readonly path: ListPath;
  readonly list: readonly unknown[];
}

/** The longest of an event's lists, or of an object in it, as the messages of a run's input are. */
function longList(value: JsonObject): LongList | undefined {
  let found: LongList | undefined;
  const see = (path: ListPath, list: unknown): void => {
    if (Array.isArray(list) && list.length > (found?.list.length ?? PART)) found = { path, list };
  };
  for (const key of Object.keys(value)) {
    const field = value[key];
    see([key], field);
    if (!isObject(field)) continue;
    for (const inner of Object.keys(field)) see([key, inner], field[inner]);
  }
  return found;
}

function withList(value: JsonObject, [key, inner]: ListPath, list: readonly unknown[]): JsonObject {
  const field = value[key];
  return { ...value, [key]: inner === undefined ? list : { ...Object(field), [inner]: list } };
}

/** An issue of a part, where it is in the whole. */
function moved(issue: Issue, list: ListPath, by: number): Issue {
  const at = issue.path[list.length];
  const isInside = list.every((key, depth) => issue.path[depth] === key);
  if (!isInside || typeof at !== "number") return issue;
  return { ...issue, path: issue.path.with(list.length, at + by) };
}
