/**
 * Where the openings of a client that joins go. A START of a message that the client has from the
 * snapshot changes nothing. One of a message that is not in it (a MESSAGES_SNAPSHOT left it out while
 * it was open) would make it anew; before the snapshot it makes it too, but the snapshot takes it away
 * again, and the construct is open, as it is for a client that never left.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";

export interface PlacedOpenings {
  /** To be sent between RUN_STARTED and MESSAGES_SNAPSHOT; nearly always none. */
  readonly before: readonly JsonObject[];
  /** To be sent after the snapshots. */
  readonly after: readonly JsonObject[];
}

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
    else after.push(isCall ? named(opening, calls.get(toolCallId)) : opening);
  }
  return { before, after };
}

/** A START renames a call that is there, and a snapshot may have renamed it since. */
function named(opening: JsonObject, call: JsonObject | undefined): JsonObject {
  const called = call?.["function"];
  return isObject(called) && typeof called["name"] === "string"
    ? { ...opening, toolCallName: called["name"] }
    : opening;
}
