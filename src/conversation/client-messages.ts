/**
 * The effect of a snapshot on a client that already has messages: those in both stay in place, and
 * the others follow (`apply/default.ts` of @ag-ui/client, 0.0.59 and 1.0.0). So a message that left
 * and returned would be in another place than in the log. Of a client's messages only the needed
 * fields are stored, up to a bound, while its answer lasts.
 */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";

/** Reasoning and activities survive a snapshot; clients themselves add the other two. */
const ROLES = ["reasoning", "activity", "user", "tool"] as const;

/** A message that a client states it has. */
export interface ClientMessage {
  readonly id: string;
  /** Undefined: a role that no rule here needs. */
  readonly role: (typeof ROLES)[number] | undefined;
  readonly activityType: string | undefined;
}

const MESSAGES_MAX = 20_000;
/** Characters of one id, and of one type; a longer one is ignored. */
const ID_CHARS_MAX = 1_024;
/** A million characters are 29,000 ids that are UUIDs. */
const CHARS_MAX = 1_048_576;

/** From a list that a client sent; items that are not messages are ignored. */
export function clientMessagesIn(
  messages: readonly unknown[],
  { field }: { readonly field: string },
): readonly ClientMessage[] {
  if (messages.length > MESSAGES_MAX) throw tooMuch(field, `at most ${MESSAGES_MAX} messages`);
  const clientMessages = messages.flatMap(clientMessageIn);
  const chars = clientMessages.reduce((sum, message) => sum + charsOf(message), 0);
  if (chars > CHARS_MAX) throw tooMuch(field, `ids of at most ${CHARS_MAX} characters together`);
  return clientMessages;
}

/** Whether a client that has `clientMessages` would show the messages with these ids in another order. */
export function reorders(
  clientMessages: readonly ClientMessage[],
  ids: readonly unknown[],
): boolean {
  const idSet = new Set(ids);
  const clientIds = new Set(clientMessages.map(({ id }) => id));
  const staying = [...clientIds].filter((id) => idSet.has(id));
  return staying.some((id, at) => id !== ids[at]);
}

/**
 * Refuses a client whose last message is of its user or of one of its tools and was never in the
 * log: the snapshot would delete it silently. A message that the log has lost is accepted.
 */
export function refuseUnstored(
  clientMessages: readonly ClientMessage[],
  log: { readonly hasHad: (messageId: string) => boolean } | undefined,
): void {
  const last = clientMessages.at(-1);
  const isOfClient = last?.role === "user" || last?.role === "tool";
  if (!isOfClient || log?.hasHad(last.id) === true) return;
  const message = `the message ${last.id} is not stored, because this request only reads: run the agent with it, or take it out of the client, and connect again`;
  throw new ServiceError("failed_precondition", "MESSAGE_NOT_STORED", message);
}

/** A rough number: an object of three members and two strings, without their characters. */
const MESSAGE_BYTES = 96;

/** An estimate of their memory. */
export function bytesOf(clientMessages: readonly ClientMessage[]): number {
  return clientMessages.reduce((sum, message) => sum + MESSAGE_BYTES + 2 * charsOf(message), 0);
}

function clientMessageIn(message: unknown): readonly ClientMessage[] {
  if (!isObject(message)) return [];
  const { id, activityType: type } = message;
  if (typeof id !== "string" || id.length > ID_CHARS_MAX) return [];
  const role = ROLES.find((one) => one === message["role"]);
  const isNamed = role === "activity" && typeof type === "string" && type.length <= ID_CHARS_MAX;
  return [{ id, role, activityType: isNamed ? type : undefined }];
}

function charsOf({ id, activityType }: ClientMessage): number {
  return id.length + (activityType?.length ?? 0);
}

function tooMuch(field: string, bound: string): ServiceError {
  return invalidArgument([{ field, description: `${field} must have ${bound}` }]);
}

/** Makes 1.0.0 drop activities that a snapshot omits; before, only if it has another activity. */
export const OWNS_ACTIVITIES: JsonObject = {
  "@ag-ui/client": { authoritativeActivityTypes: null },
};

const ID = "session-ledger-nothing";
const PLACEHOLDER: JsonObject = { id: ID, role: "developer", content: "" };

/**
 * Makes a client forget its messages before a snapshot. A client keeps messages in place that are
 * in the snapshot too, and keeps reasoning and activities where the snapshot has none
 * (`apply/default.ts` of @ag-ui/client, 0.0.59 and 1.0.0). So a message that was inserted in the
 * middle would be in another place than in the log, and a message that left the log would stay.
 * Clients do not state their activities, so in a session that ever had one, every client forgets
 * first. Of several messages with one id in the client, the last counts, so the others here have no
 * effect (test/e2e/agui.test.ts).
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
export function outlives(
  clientMessages: readonly ClientMessage[],
  ids: readonly unknown[],
): boolean {
  const idSet = new Set(ids);
  return clientMessages.some(
    ({ id, role }) => (role === "reasoning" || role === "activity") && !idSet.has(id),
  );
}
