/** Takes from an object what keeps schemas from accepting it, where they can do without. */
import type { z } from "zod";
import { without } from "../canonical/event.ts";
import { isObject, type JsonObject } from "../../agui/json.ts";

/** The very object when nothing is wrong with it; undefined: it cannot be helped. */
export function withoutFaults(
  schemas: readonly z.ZodObject[],
  value: JsonObject,
): JsonObject | undefined {
  if (schemas.length === 0) return undefined;
  let rest = value;
  for (const schema of schemas) {
    const result = schema.safeParse(rest);
    if (result.success) continue;
    const fields = new Set(result.error.issues.map(({ path }) => String(path[0] ?? "")));
    rest = without(rest, ...fields);
    if (!schema.safeParse(rest).success) return undefined;
  }
  // What the first one can do without, the second may need.
  return rest === value || schemas.every((schema) => schema.safeParse(rest).success)
    ? rest
    : undefined;
}

/** The very list when nothing in it changes; what becomes undefined goes. */
export function mapped(
  list: readonly unknown[],
  change: (element: JsonObject) => JsonObject | undefined,
): readonly unknown[] {
  const changed = list.flatMap((element) => {
    const kept = isObject(element) ? change(element) : undefined;
    return kept === undefined ? [] : [kept];
  });
  const isSame =
    changed.length === list.length && changed.every((element, index) => element === list[index]);
  return isSame ? list : changed;
}

/** The very object when the value is the one that it has. */
export function withField(object: JsonObject, name: string, value: unknown): JsonObject {
  if (object[name] === value) return object;
  return value === undefined ? without(object, name) : { ...object, [name]: value };
}
