/**
 * What a client makes of a snapshot when it has messages already, as one that comes back: those that are
 * in both stay where they are, and the others are put behind them (`apply/default.ts` of @ag-ui/client,
 * 0.0.59 and 1.0.0). What left the conversation and returned to it while the client was away would be
 * in another place than in the log.
 *
 * A client sends its messages whole, and they are held as long as its answer lasts; so of each only what
 * is looked at is kept, and of that no more than a bound.
 */
import { isObject } from "../agui/json.ts";
import { invalidArgument, type ServiceError } from "../base/errors.ts";

/** A message that a client says it has. */
export interface KeptMessage {
  readonly id: string;
  /** Only of those that a snapshot which has none leaves to the client. */
  readonly role: "reasoning" | "activity" | undefined;
  /** Of an activity. */
  readonly activityType: string | undefined;
}

export interface KeptLimits {
  readonly messagesMax: number;
  /** Of one id, and of one type; a longer one is not looked at. */
  readonly idCharsMax: number;
  readonly charsMax: number;
}

/** A million characters are 29,000 ids that are UUIDs. */
const KEPT_LIMITS: KeptLimits = {
  messagesMax: 20_000,
  idCharsMax: 1_024,
  charsMax: 1_048_576,
};

/** Of a list that a client sent; what is in it and is no message counts for nothing. */
export function keptOf(
  messages: readonly unknown[],
  { field }: { readonly field: string },
  limits = KEPT_LIMITS,
): readonly KeptMessage[] {
  const { messagesMax, charsMax } = limits;
  if (messages.length > messagesMax) throw tooMuch(field, `at most ${messagesMax} messages`);
  const kept = messages.flatMap((message) => keptMessage(message, limits));
  const chars = kept.reduce((sum, message) => sum + charsOf(message), 0);
  if (chars > charsMax) throw tooMuch(field, `ids of at most ${charsMax} characters together`);
  return kept;
}

/** Whether a client that has `kept` would show the messages with these ids in another order. */
export function reorders(kept: readonly KeptMessage[], ids: readonly unknown[]): boolean {
  const known = new Set(ids);
  const keptIds = new Set(kept.map(({ id }) => id));
  const staying = [...keptIds].filter((id) => known.has(id));
  return staying.some((id, at) => id !== ids[at]);
}

/** A rough number: an object of three members and two strings, without their characters. */
const MESSAGE_BYTES = 96;

/** About what they take in memory. */
export function bytesOf(kept: readonly KeptMessage[]): number {
  return kept.reduce((sum, message) => sum + MESSAGE_BYTES + 2 * charsOf(message), 0);
}

function keptMessage(message: unknown, { idCharsMax }: KeptLimits): readonly KeptMessage[] {
  if (!isObject(message)) return [];
  const { id, role, activityType } = message;
  if (typeof id !== "string" || id.length > idCharsMax) return [];
  if (role === "reasoning") return [{ id, role, activityType: undefined }];
  const isNamed = typeof activityType === "string" && activityType.length <= idCharsMax;
  if (role === "activity") return [{ id, role, activityType: isNamed ? activityType : undefined }];
  return [{ id, role: undefined, activityType: undefined }];
}

function charsOf({ id, activityType }: KeptMessage): number {
  return id.length + (activityType?.length ?? 0);
}

function tooMuch(field: string, bound: string): ServiceError {
  return invalidArgument([{ field, description: `${field} must have ${bound}` }]);
}
