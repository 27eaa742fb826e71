import type { Violation } from "../base/errors.ts";
import { isCompressible } from "./catalogue.ts";

/** The limit of events that one row stands for. */
export const EVENT_COUNT_MAX = 1_000_000;

export function checkEventCount(eventType: string, eventCount: number): Violation | undefined {
  if (eventCount < 0 || eventCount > EVENT_COUNT_MAX)
    return refused(`event_count must be from 0 to ${EVENT_COUNT_MAX}, but is ${eventCount}`);
  if (eventCount > 1 && !isCompressible(eventType))
    return refused(`event_count must be 1, or left out: only fragments of a text are counted`);
  return undefined;
}

function refused(description: string): Violation {
  return { field: "event_count", description };
}
