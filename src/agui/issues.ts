/**
 * Finds the faults of an event by its schema, without a full check of a hopeless list. zod makes an
 * issue for every wrong element before it returns: a megabyte of `{}` as messages gives 350,000
 * issues, and blocks all other work for a second. So a long list is checked in parts, and the first
 * part with an issue is the last.
 */
import type { z } from "zod";
import { isObject, type JsonObject } from "./json.ts";

export type Issue = z.core.$ZodIssue;

/** Elements of a list that are checked in one part. */
const PART = 1_000;

/** zod's own messages are never shown, and to compose one takes longer than to find the issue. */
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

/** The longest list of the event, or of an object in it, such as the messages of a run's input. */
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

/** An issue of a part, with its index in the whole list. */
function moved(issue: Issue, list: ListPath, by: number): Issue {
  const at = issue.path[list.length];
  const isInside = list.every((key, depth) => issue.path[depth] === key);
  if (!isInside || typeof at !== "number") return issue;
  return { ...issue, path: issue.path.with(list.length, at + by) };
}
