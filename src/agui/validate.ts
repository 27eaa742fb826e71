import type { Violation } from "../base/errors.ts";
import type { EventType } from "./catalogue.ts";
import type { JsonObject } from "./json.ts";
import { issuesOf, isTakenInParts } from "./issues.ts";
import { CURRENT, EARLIER } from "./schemas.ts";
import { fieldsAtFault, violationsOf } from "./violations.ts";

/**
 * The reasons why every version of the protocol refuses the event; empty when one version accepts
 * it.
 */
export function validate(type: EventType, value: JsonObject): readonly Violation[] {
  const [current, earlier] = [CURRENT.get(type), EARLIER.get(type)];
  const now = current && issuesOf(current, value);
  if (now?.length === 0) return [];
  const before = earlier && issuesOf(earlier, value);
  if (before === undefined || before.length === 0) return [];
  // Faults that only 1.0.0 reports are left out when there are faults in every version.
  const violations = violationsOf(now ?? before, value);
  const everywhere = fieldsAtFault(before);
  const common = violations.filter(({ field }) => everywhere.has(field));
  if (common.length > 0) return common;
  // For a long list the two checks may have stopped in different parts; then the earlier versions,
  // which accept more, decide.
  return isTakenInParts(value) ? violationsOf(before, value) : violations;
}

/** The reasons why 1.0.0 refuses the event. */
export function validateExactly(type: EventType, value: JsonObject): readonly Violation[] {
  const current = CURRENT.get(type);
  if (current !== undefined) return violationsOf(issuesOf(current, value), value);
  return [{ field: "event_type", description: `event_type ${type} is not in AG-UI 1.0` }];
}
