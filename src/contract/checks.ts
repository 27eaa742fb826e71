/** The checks of every request, field by field; AG-UI has its own checks. */
import { CATALOGUE } from "@session-ledger/agui/catalogue";
import { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import { VALUE_DEPTH_MAX } from "@session-ledger/agui/payload";
import { elementSpans, memberSpans, outline } from "@session-ledger/agui/spans";
import { ServiceError, type Violation, invalidArgument } from "@session-ledger/base/errors";
import { ID_BYTES_MAX, isSessionId } from "@session-ledger/base/ids";
import { FEEDBACK_KEY } from "../store/rows.ts";

/** The maximum of PostgreSQL's bigint. */
export const INT64_MAX = 2n ** 63n - 1n;
/** The types of AG-UI. */
export const EVENT_TYPES: readonly string[] = CATALOGUE.map(({ type }) => type);
export const EVENT_TYPE_FORM = /^[A-Z][A-Z0-9_]{0,63}$/;
/** The number of types that one filter may name; the catalogue has fewer. */
const EVENT_TYPES_MAX = 64;

export type Check = Violation | undefined;

/** The violations among the checks, in their order. */
export function violationsOf(checks: readonly Check[]): readonly Violation[] {
  return checks.filter((check) => check !== undefined);
}

/** Throws the violations among the checks, if any. */
export function refuse(checks: readonly Check[]): void {
  for (const check of checks) {
    if (check !== undefined) throw invalidArgument(violationsOf(checks));
  }
}

/** The violation of a rule that must hold; its description is the field and the rule. */
export function checkThat(field: string, holds: boolean, rule: string): Check {
  return holds ? undefined : { field, description: `${field} ${rule}` };
}

/** Of a page; 0 stands for a default. */
export function checkSize(field: string, size: number, max: number): Check {
  return checkThat(field, size >= 0 && size <= max, `must be 1 to ${max}, or 0 for the default`);
}

export const TOKEN_RULE = "must be next_page_token of the page before, or empty";

/**
 * PostgreSQL text cannot hold U+0000, nor half of a surrogate pair, which JSON can write. JSON
 * escapes for them in a payload are ordinary characters.
 */
export function checkText(field: string, text: string | undefined): Check {
  if (text === undefined) return undefined;
  if (text.includes("\0")) return { field, description: `${field} must not contain U+0000` };
  if (text.isWellFormed()) return undefined;
  return { field, description: `${field} must be Unicode text, without halves of surrogate pairs` };
}

export function checkTextBytes(field: string, text: string | undefined, bytesMax: number): Check {
  if (text === undefined) return undefined;
  if (Buffer.byteLength(text) > bytesMax) {
    return { field, description: `${field} must have at most ${bytesMax} bytes` };
  }
  return checkText(field, text);
}

/** The fields of the contract that name a session. */
type SessionIdField = "session_id" | "id" | "new_id" | "parent_session_id";
const ID_RULE = `must be 1 to ${ID_BYTES_MAX} bytes of [A-Za-z0-9._:-], not . or ..`;

/** The violation of a session id that a caller sent. */
export function checkSessionId(
  sessionId: string,
  field: SessionIdField = "session_id",
): Violation | undefined {
  return checkThat(field, isSessionId(sessionId), sessionId === "" ? "is required" : ID_RULE);
}

const OF_FEEDBACK = new RegExp(FEEDBACK_KEY);

export function checkKey(key: string): Check {
  if (key === "") return undefined;
  const field = "idempotency_key";
  if (OF_FEEDBACK.test(key)) return { field, description: `${field} has the form of feedback` };
  return checkTextBytes(field, key, ID_BYTES_MAX);
}

const EPOCH_RULE = `must be at most ${INT64_MAX}`;

export function checkEpoch(epoch: bigint | undefined): Check {
  return checkThat("producer_epoch", epoch === undefined || epoch <= INT64_MAX, EPOCH_RULE);
}

/** Checks only the form: in lenient mode a table holds types that no catalogue knows. */
export function checkEventTypeFilter(eventTypes: readonly string[]): Check {
  if (eventTypes.length > EVENT_TYPES_MAX)
    return checkThat("event_types", false, `must name at most ${EVENT_TYPES_MAX} types`);
  const wrong = eventTypes.findIndex((type) => !EVENT_TYPE_FORM.test(type));
  const rule = "must be an event type: A to Z, 0 to 9 and _";
  return checkThat(`event_types[${wrong}]`, wrong < 0, rule);
}

export function checkMessageTypeFilter(eventTypes: readonly string[]): Check {
  const types: readonly string[] = MESSAGE_TYPES;
  const wrong = eventTypes.findIndex((type) => !types.includes(type));
  return checkThat(`event_types[${wrong}]`, wrong < 0, `must be one of ${types.join(", ")}`);
}

/** Runs before any code parses the payload. */
export function refuseLargePayload(payload: string, bytesMax: number): void {
  // A UTF-16 unit takes at most three bytes, so short payloads need not be measured.
  if (payload.length * 3 <= bytesMax) return;
  const bytes = Buffer.byteLength(payload);
  if (bytes <= bytesMax) return;
  throw tooLarge("payload", { bytes, bytesMax });
}

/** `bytesMax` is the room in the row besides the payload. */
export function refuseLargeIndex(bytes: number, bytesMax: number): void {
  if (bytes > bytesMax) throw tooLarge("fragments", { bytes, bytesMax });
}

function tooLarge(
  field: string,
  { bytes, bytesMax }: { readonly bytes: number; readonly bytesMax: number },
): ServiceError {
  const message = `${field} has ${bytes} bytes, at most ${bytesMax} are accepted`;
  return new ServiceError("overloaded", "PAYLOAD_TOO_LARGE", message, {
    violations: [{ field, description: `expected at most ${bytesMax} bytes` }],
  });
}

export const BODY_DEPTH_MAX = VALUE_DEPTH_MAX;

export function checkBodyDepth(text: string): Check {
  if (outline(text).depth <= BODY_DEPTH_MAX) return undefined;
  return { field: "", description: `the body must be at most ${BODY_DEPTH_MAX} levels deep` };
}

/** The limit of members whose keys are checked one by one; our bodies have two. */
const NAMED_MEMBERS_MAX = 64;

/**
 * The first key that an object in this text has twice; empty with too many members to find its
 * name. JSON.parse takes the last value, and a proxy may have checked the first one.
 */
export function repeatedKey(text: string, object: object): string | undefined {
  const { commas } = outline(text);
  if (commas === 0 || Object.keys(object).length > commas) return undefined;
  if (commas >= NAMED_MEMBERS_MAX) return "";
  const seen = new Set<string>();
  return memberSpans(text).find(({ key }) => seen.size === seen.add(key).size)?.key;
}

/** The elements of an array that JSON.parse has read from this text, as they are spelled. */
export function elementTexts(text: string): readonly string[] {
  return elementSpans(text).map(({ start, end }) => text.slice(start, end));
}

/** The same error for a request whose fields have other names than the contract's; `end` is added to its message. */
export function withNames(
  error: ServiceError,
  nameOf: (text: string) => string,
  end = "",
): ServiceError {
  const { code, reason, violations, retryAfterMs } = error;
  const message = `${nameOf(error.message)}${end}`;
  if (violations.length === 0 && message === error.message) return error;
  return new ServiceError(code, reason, message, {
    violations: violations.map(({ field, description }) => ({
      field: nameOf(field),
      description: nameOf(description),
    })),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    cause: error,
  });
}
