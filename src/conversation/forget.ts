/**
 * How a client is made to have nothing before a snapshot. Of what it has, it keeps in place what is in
 * the snapshot too, and reasoning and activities where the snapshot has none (`apply/default.ts` of
 * @ag-ui/client, 0.0.59 and 1.0.0). So for one that comes back, what came into the middle meanwhile, as
 * a tool's result does, would be in another place than in the log, and what left the log would stay.
 *
 * Clients say which messages they have, but not which activities. So each client of a session that ever
 * had an activity is made to have nothing first.
 */
import type { JsonObject } from "../agui/json.ts";
import type { KeptMessage } from "./kept.ts";

/**
 * Has 1.0.0 let go of the activities that a snapshot leaves out; earlier ones do so only where the
 * snapshot has another.
 */
export const OWNS_ACTIVITIES: JsonObject = {
  "@ag-ui/client": { authoritativeActivityTypes: null },
};

const ID = "session-ledger-nothing";
const PLACEHOLDER: JsonObject = { id: ID, role: "developer", content: "" };

/**
 * Leaves a client nothing, also no reasoning and no activities, which go where a snapshot has some. Of
 * messages with one id that is there the last counts, so the others here come to nothing; the same in
 * 0.0.59 and 1.0.0 (test/e2e/agui.test.ts).
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

/** Whether a snapshot of the messages with these ids may leave what it does not have. */
export function outlives(kept: readonly KeptMessage[], ids: readonly unknown[]): boolean {
  const known = new Set(ids);
  return kept.some(
    ({ id, role }) => (role === "reasoning" || role === "activity") && !known.has(id),
  );
}
