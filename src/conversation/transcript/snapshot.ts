/**
 * The effect of a MESSAGES_SNAPSHOT on existing messages. Messages that the snapshot has are
 * replaced in place, and new ones go to the end. The others are removed, except kinds that an
 * agent's backend often does not know: reasoning, unless the snapshot has reasoning, and
 * activities, unless it has activities or states which types of them it owns. The cost grows with
 * the number of messages, which is mostly the snapshot's own text.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";
import { adopted, type Message, type MessageList } from "./message-list.ts";

export function applySnapshot(list: MessageList, event: JsonObject): void {
  const { messages } = event;
  if (!Array.isArray(messages)) return;
  const incoming = messages.filter(isObject).map(adopted);
  const byId = new Map(incoming.map((message) => [message["id"], message]));
  const keeps = keptFrom(incoming, ownedActivityTypes(event));
  const updated = new Set<unknown>();
  for (const entry of list.entries()) {
    const id = entry.message["id"];
    const update = byId.get(id);
    if (update !== undefined) {
      list.replace(entry, update);
      updated.add(id);
    } else if (!keeps(entry.message)) list.remove(entry);
  }
  for (const message of incoming) if (!updated.has(message["id"])) list.push(message);
}

function keptFrom(
  incoming: readonly Message[],
  owned: readonly unknown[] | null | undefined,
): (message: Message) => boolean {
  const has = (role: string): boolean => incoming.some((message) => message["role"] === role);
  const hasReasoning = has("reasoning");
  const ownsActivities = owned === null || (owned === undefined && has("activity"));
  const types = new Set(owned);
  return ({ role, activityType }) =>
    (role === "reasoning" && !hasReasoning) ||
    (role === "activity" && !ownsActivities && !types.has(activityType));
}

/**
 * A convention of the client from 1.0.0 on: null owns all types, and a list owns its types.
 * Undefined states nothing, and any other value owns no type.
 */
function ownedActivityTypes({ metadata }: JsonObject): readonly unknown[] | null | undefined {
  if (!isObject(metadata) || !Object.hasOwn(metadata, "@ag-ui/client")) return undefined;
  const convention = metadata["@ag-ui/client"];
  if (!isObject(convention)) return [];
  if (!Object.hasOwn(convention, "authoritativeActivityTypes")) return undefined;
  const types = convention["authoritativeActivityTypes"];
  if (types === null) return null;
  const isList = Array.isArray(types) && types.every((type) => typeof type === "string");
  return isList ? types : [];
}
