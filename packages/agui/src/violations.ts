/** Describes the faults of a payload: the field, the expected value, the actual value. */
import type { z } from "zod";
import { type Violation, VIOLATIONS_MAX } from "@session-ledger/base/errors";
import { isObject, type JsonObject, pathName } from "./json.ts";

/** Faulty fields that are examined; a payload may have millions, which change no answer. */
const FIELDS_MAX = 1_000;

export type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/**
 * Field names that producers confuse with the protocol's, by the correct field: documents of the
 * platform show `content` and `args`, recorded agents send `result` and `error`.
 */
const MISTAKEN: Readonly<Record<string, readonly string[]>> = {
  "payload.delta": ["content", "args"],
  "payload.content": ["result"],
  "payload.message": ["error"],
};

/** One violation per field, in the order of the fields' checks. */
export function violationsOf(
  issues: readonly Issue[],
  value: JsonObject,
  root = "payload",
): readonly Violation[] {
  const found = new Map<string, Violation>();
  for (const expectation of expectationsOf(issues)) {
    const field = pathName([root, ...expectation.path]);
    if (found.size === VIOLATIONS_MAX) break;
    const description = `${field} ${sentence(expectation, valueAt(value, expectation.path))}`;
    found.set(field, { field, description: description + mistakenName(field, value) });
  }
  return [...found.values()];
}

/** The fields of the first issues, spelled as in `violationsOf`. */
export function fieldsAtFault(issues: readonly Issue[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const { path } of expectationsOf(issues)) {
    if (found.size === FIELDS_MAX) break;
    found.add(pathName(["payload", ...path]));
  }
  return found;
}

interface Expectation {
  readonly path: Path;
  /** The expected value; undefined: the field must be present and not null. */
  readonly expected: string | undefined;
  /** True for an exact value instead of a kind of value: the answer then states the difference. */
  readonly isValue: boolean;
}

/** Yielded one by one: a megabyte may have 350,000, of which few are reported. */
function* expectationsOf(
  issues: readonly Issue[],
  prefix: Path = [],
): Generator<Expectation, void, undefined> {
  for (const issue of issues) yield* expectations(issue, prefix);
}

function* expectations(issue: Issue, prefix: Path): Generator<Expectation, void, undefined> {
  const path = [...prefix, ...issue.path];
  if (issue.code !== "invalid_union") return yield { path, ...expectationOf(issue) };
  if ("options" in issue && Array.isArray(issue.options))
    return yield { path, expected: oneOf(issue.options), isValue: true };
  // Of a union's branches, the branch that the value entered is the intended one.
  const entered = issue.errors.find((branch) => branch.every((inside) => inside.path.length > 0));
  if (entered !== undefined) return yield* expectationsOf(entered, path);
  const kinds = issue.errors.flatMap(([first]) => (first ? [expectationOf(first).expected] : []));
  yield { path, expected: kinds.join(" or "), isValue: false };
}

const ARTICLES: Readonly<Record<string, string>> = {
  array: "an array",
  boolean: "true or false",
  int: "an integer",
  object: "an object",
};

function expectationOf(issue: Issue): Omit<Expectation, "path"> {
  switch (issue.code) {
    case "invalid_type":
      return { expected: ARTICLES[issue.expected] ?? `a ${issue.expected}`, isValue: false };
    case "invalid_value":
      return { expected: oneOf(issue.values), isValue: true };
    case "invalid_format": // The protocol has one format.
      return { expected: "a JSON Pointer, such as /todos/0/done", isValue: true };
    case "too_small":
      return { expected: `${sizeOf(issue.origin)}at least ${issue.minimum}`, isValue: true };
    case "too_big":
      return { expected: `${sizeOf(issue.origin)}at most ${issue.maximum}`, isValue: true };
    case "custom": // Function checks in 1.0.0 have no message.
      return {
        expected: issue.message === "Invalid input" ? undefined : issue.message,
        isValue: false,
      };
    case "invalid_union": // A union in a union: the protocol has none.
    case "invalid_element":
    case "invalid_key":
    case "not_multiple_of":
    case "unrecognized_keys":
      return { expected: "valid", isValue: false }; // No schema of 1.0.0 has this check.
  }
}

function sizeOf(origin: string): string {
  return origin === "array" ? "an array of " : "";
}

function sentence({ expected, isValue }: Expectation, value: unknown): string {
  const is = isValue ? differenceOf(value) : kindOf(value);
  // Its function checks are: not absent, not null, and an object.
  if (expected === undefined)
    return `must be ${value === undefined || value === null ? "set" : "an object"}, but is ${is}`;
  return `must be ${expected}, but is ${is}`;
}

function oneOf(values: readonly unknown[]): string {
  const names = values.map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  return names.length === 1 ? names.join() : `one of ${names.join(", ")}`;
}

function valueAt(value: unknown, path: Path): unknown {
  let inside = value;
  for (const key of path) {
    if (Array.isArray(inside)) inside = (inside as readonly unknown[])[Number(key)];
    else if (isObject(inside) && Object.hasOwn(inside, key)) inside = inside[String(key)];
    else return undefined;
  }
  return inside;
}

/** Strings are not repeated: content stays out of messages, which end up in logs. */
function differenceOf(value: unknown): string {
  if (typeof value === "number") return String(value);
  return typeof value === "string" ? "another string" : kindOf(value);
}

function kindOf(value: unknown): string {
  if (value === undefined) return "absent";
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function mistakenName(field: string, value: JsonObject): string {
  const names = (MISTAKEN[field] ?? []).filter((name) => Object.hasOwn(value, name));
  return names.map((name) => `; ${name} is not AG-UI`).join("");
}
