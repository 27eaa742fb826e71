/** Removes optional values from an object that keep schemas from accepting it. */
import type { z } from "zod";
import { without } from "../canonical/event.ts";
import { isObject, type JsonObject } from "../../agui/json.ts";

/** Returns the same object when it has no fault; undefined: no removal helps. */
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
  // The second schema may require a field that the first one drops.
  return rest === value || schemas.every((schema) => schema.safeParse(rest).success)
    ? rest
    : undefined;
}

/** Returns the same list when no item changes; items that become undefined are removed. */
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

/** Returns the same object when it already has the value. */
export function withField(object: JsonObject, name: string, value: unknown): JsonObject {
  if (object[name] === value) return object;
  return value === undefined ? without(object, name) : { ...object, [name]: value };
}
