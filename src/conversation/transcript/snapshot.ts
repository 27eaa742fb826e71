/**
 * What a MESSAGES_SNAPSHOT does to messages that are there: those it has are replaced where they stand,
 * new ones go to the end, and the others go, except what an agent's backend often does not know:
 * reasoning, unless the snapshot has reasoning, and activities, unless it has activities or says which
 * types of them it owns. It costs as much as there are messages, which is mostly what its own text does.
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
 * The client's own convention, from 1.0.0: null owns all types, a list those in it; undefined says
 * nothing, and what makes no sense owns none.
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
