/** The events that open constructs again, for a client that joins. */
import { isObject, type JsonObject } from "@session-ledger/agui/json";

export interface PlacedOpenings {
  /** Openings to send between RUN_STARTED and MESSAGES_SNAPSHOT; nearly always none. */
  readonly before: readonly JsonObject[];
  /** Openings to send after the snapshots. */
  readonly after: readonly JsonObject[];
}

/**
 * Places the openings of a client that joins. A START of a message in its snapshot changes nothing.
 * A START of another one (a MESSAGES_SNAPSHOT removed the message while it was open) would make the
 * message again. Sent before the snapshot, which removes the message, it only opens the construct.
 */
export function placeOpenings(
  openings: readonly JsonObject[],
  messages: readonly JsonObject[],
): PlacedOpenings {
  const ids = new Set<unknown>();
  const calls = new Map<unknown, JsonObject>();
  for (const { id, toolCalls } of openings.length === 0 ? [] : messages) {
    ids.add(id);
    if (!Array.isArray(toolCalls)) continue;
    for (const call of toolCalls as readonly unknown[])
      if (isObject(call) && !calls.has(call["id"])) calls.set(call["id"], call);
  }
  const before: JsonObject[] = [];
  const after: JsonObject[] = [];
  for (const opening of openings) {
    const { type, messageId, toolCallId } = opening;
    const isMessage = type === "TEXT_MESSAGE_START" || type === "REASONING_MESSAGE_START";
    const isCall = type === "TOOL_CALL_START";
    if ((isMessage && !ids.has(messageId)) || (isCall && !calls.has(toolCallId)))
      before.push(opening);
    else after.push(isCall ? withCurrentName(opening, calls.get(toolCallId)) : opening);
  }
  return { before, after };
}

/** A START renames an existing call, and a snapshot may have renamed the call since. */
function withCurrentName(opening: JsonObject, call: JsonObject | undefined): JsonObject {
  const called = call?.["function"];
  return isObject(called) && typeof called["name"] === "string"
    ? { ...opening, toolCallName: called["name"] }
    : opening;
}
