/**
 * The branches of a conversation. A message of a person may begin one (`Branch`): from the run on that
 * takes it, the conversation is the part before, the message, and what comes behind it. The log has all
 * branches. An earlier one is the transcript up to the event before that run, which is why a branch needs
 * no separate name.
 */
import type { JsonObject } from "../json.ts";
import type { TakenBranch } from "./turns.ts";

/** The ids of the removed messages; undefined: the message where the branch begins does not exist. */
export function leftBy(
  { leaves, messageId, messages, later }: TakenBranch,
  log: readonly JsonObject[],
): readonly string[] | undefined {
  const index = log.findIndex(({ id }) => id === messageId);
  if (index === -1) return undefined;
  const own = new Set([...later, ...messages].map(({ id }) => id));
  const behind = log.slice(leaves === "before" ? index : index + 1);
  return behind.flatMap(({ id }) => {
    // In the place of a message may come one with its id.
    const stays = own.has(id) && id !== (leaves === "before" ? messageId : undefined);
    return typeof id === "string" && !stays ? [id] : [];
  });
}
