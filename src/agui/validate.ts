import type { Violation } from "../base/errors.ts";
import type { EventType } from "./catalogue.ts";
import type { JsonObject } from "./json.ts";
import { issuesOf, isTakenInParts } from "./issues.ts";
import { CURRENT, EARLIER } from "./schemas.ts";
import { fieldsAtFault, violationsOf } from "./violations.ts";

/** What keeps every version of the protocol from accepting the event; nothing when one accepts it. */
export function validate(type: EventType, value: JsonObject): readonly Violation[] {
  const [current, earlier] = [CURRENT.get(type), EARLIER.get(type)];
  const now = current && issuesOf(current, value);
  if (now?.length === 0) return [];
  const before = earlier && issuesOf(earlier, value);
  if (before === undefined || before.length === 0) return [];
  // What only 1.0.0 minds is not what is wrong, where something else is wrong in every version.
  const violations = violationsOf(now ?? before, value);
  const everywhere = fieldsAtFault(before);
  const common = violations.filter(({ field }) => everywhere.has(field));
  if (common.length > 0) return common;
  // Of a long list the two may have stopped in different parts; the earlier versions, which take more,
  // have the last word then.
  return isTakenInParts(value) ? violationsOf(before, value) : violations;
}

/** What keeps 1.0.0 from accepting the event. */
export function validateExactly(type: EventType, value: JsonObject): readonly Violation[] {
  const current = CURRENT.get(type);
  if (current !== undefined) return violationsOf(issuesOf(current, value), value);
  return [{ field: "event_type", description: `event_type ${type} is not in AG-UI 1.0` }];
}
