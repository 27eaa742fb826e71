import type { Violation } from "../base/errors.ts";
import type { EventType } from "./catalogue.ts";
import type { JsonObject } from "./json.ts";
import { CURRENT, EARLIER } from "./schemas.ts";
import { fieldsAtFault, violationsOf } from "./violations.ts";

/** Nobody reads zod's own messages: to put one together takes longer than to find the issue. */
const UNWORDED = { error: () => "Invalid input" };

/** What keeps every version of the protocol from accepting the event; nothing when one accepts it. */
export function validate(type: EventType, value: JsonObject): readonly Violation[] {
  const current = CURRENT.get(type)?.safeParse(value, UNWORDED);
  if (current?.success === true) return [];
  const earlier = EARLIER.get(type)?.safeParse(value, UNWORDED);
  if (earlier === undefined || earlier.success) return [];
  const violations = violationsOf((current ?? earlier).error.issues, value);
  // What only 1.0.0 minds is not what is wrong, where something else is wrong in every version.
  const everywhere = fieldsAtFault(earlier.error.issues);
  const common = violations.filter(({ field }) => everywhere.has(field));
  return common.length > 0 ? common : violations;
}
