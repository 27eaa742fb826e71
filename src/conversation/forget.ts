/**
 * Makes a client forget its messages before a snapshot. A client keeps messages in place that are
 * in the snapshot too, and keeps reasoning and activities where the snapshot has none
 * (`apply/default.ts` of @ag-ui/client, 0.0.59 and 1.0.0). So for a returning client, a message
 * that was inserted in the middle meanwhile (for example a tool's result) would be in another place
 * than in the log, and a message that left the log would stay.
 *
 * Clients state which messages they have, but not which activities. So in a session that ever had
 * an activity, every client is made to forget first.
 */
import type { JsonObject } from "../agui/json.ts";
import type { KeptMessage } from "./kept.ts";

/**
 * Tells 1.0.0 to drop the activities that a snapshot leaves out; earlier versions drop them only
 * where the snapshot has another activity.
 */
export const OWNS_ACTIVITIES: JsonObject = {
  "@ag-ui/client": { authoritativeActivityTypes: null },
};

const ID = "session-ledger-nothing";
const PLACEHOLDER: JsonObject = { id: ID, role: "developer", content: "" };

/**
 * Leaves a client without any message. It also removes reasoning and activities: a snapshot
 * replaces those of a client when it has some of its own. Of several messages with one id that the
 * client has, the last counts, so the others here have no effect; the same in 0.0.59 and 1.0.0
 * (test/e2e/agui.test.ts).
 */
export const FORGET: readonly JsonObject[] = [
  { type: "MESSAGES_SNAPSHOT", messages: [PLACEHOLDER] },
  {
    type: "MESSAGES_SNAPSHOT",
    messages: [
      { id: ID, role: "reasoning", content: "" },
      { id: ID, role: "activity", activityType: ID, content: {} },
      PLACEHOLDER,
    ],
  },
  { type: "MESSAGES_SNAPSHOT", messages: [] },
];

/** Whether a client may keep messages that a snapshot with these ids does not have. */
export function outlives(kept: readonly KeptMessage[], ids: readonly unknown[]): boolean {
  const known = new Set(ids);
  return kept.some(
    ({ id, role }) => (role === "reasoning" || role === "activity") && !known.has(id),
  );
}
