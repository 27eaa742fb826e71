/**
 * A message of a user may begin a branch (`Branch`): from the run that takes it, the conversation
 * is the part before, the message, and the rows after it. An earlier branch is the transcript
 * before that run, so it needs no name.
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
