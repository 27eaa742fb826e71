/**
 * What a client makes of a snapshot when it has messages already, as one that comes back: those that are
 * in both stay where they are, and the others are put behind them (`apply/default.ts` of @ag-ui/client,
 * 0.0.59 and 1.0.0). What left the conversation and returned to it while the client was away would be
 * in another place than in the log.
 */
import { isObject, type JsonObject } from "../agui/json.ts";

/** Before the snapshot, it leaves the client nothing to keep but reasoning and activities. */
export const NO_MESSAGES: JsonObject = { type: "MESSAGES_SNAPSHOT", messages: [] };

/** Whether a client that has `kept` would show the messages with these ids in another order. */
export function reorders(kept: readonly unknown[], ids: readonly unknown[]): boolean {
  const known = new Set(ids);
  const keptIds = new Set(kept.map((message) => (isObject(message) ? message["id"] : undefined)));
  const staying = [...keptIds].filter((id) => known.has(id));
  return staying.some((id, at) => id !== ids[at]);
}
