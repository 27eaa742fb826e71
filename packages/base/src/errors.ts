/** A closed set: a new code does not compile until each edge has mapped it. */
export type ErrorCode =
  | "cancelled"
  | "invalid_argument"
  | "not_found"
  | "already_exists"
  | "failed_precondition"
  | "aborted"
  | "out_of_range"
  | "deadline_exceeded"
  | "unimplemented"
  | "unauthenticated"
  | "permission_denied"
  | "overloaded"
  | "unavailable"
  | "internal";

/**
 * The reason, for programs: the `reason` of the google.rpc.ErrorInfo in every error status (domain
 * `session-ledger`). A closed set, so that a client may switch on it; names are never reused.
 */
export type ErrorReason =
  | "CANCELLED"
  | "INVALID_REQUEST"
  | "SESSION_NOT_FOUND"
  | "SESSION_DELETED"
  | "SESSION_EXISTS"
  | "SESSION_HELD"
  | "STALE_EPOCH"
  | "STREAM_REPLACED"
  | "RUN_OPEN"
  | "RUN_NOT_FOUND"
  | "NOTHING_WAITS"
  | "TOO_MANY_PENDING"
  | "SEARCH_OFF"
  | "SESSION_FULL"
  | "FEEDBACK_FULL"
  | "FORK_TOO_LARGE"
  | "KEY_REUSED"
  | "MESSAGE_NOT_IN_BRANCH"
  | "MESSAGE_NOT_STORED"
  | "MESSAGE_NOT_FOUND"
  | "PAYLOAD_TOO_LARGE"
  | "REQUEST_TOO_LARGE"
  | "QUEUE_FULL"
  | "RATE_LIMITED"
  | "SERVER_BUSY"
  | "KEYS_UNAVAILABLE"
  | "TRANSCRIPT_TOO_LARGE"
  | "TOO_MANY_WATCHERS"
  | "TOO_MANY_STREAMS"
  | "CURSOR_BEYOND_HEAD"
  | "DEADLINE_EXCEEDED"
  | "DATABASE_UNAVAILABLE"
  | "DISK_FULL"
  | "OUTCOME_UNKNOWN"
  | "ROW_ERASED"
  | "ADDRESS_TAKEN"
  | "SCHEMA_NEWER"
  | "SCHEMA_OLDER"
  | "SCHEMA_IN_USE"
  | "IMPORT_REFUSED"
  | "SHUTTING_DOWN"
  | "NOT_IMPLEMENTED"
  | "UNAUTHENTICATED"
  | "PERMISSION_DENIED"
  | "INTERNAL";

/** An error names at most this number of faults: more of them do not help a reader. */
export const VIOLATIONS_MAX = 16;

/** One fault of the input: the field, and the expected value. */
export interface Violation {
  /** Path of the field in the request, in proto spelling: `payload.messageId`, `event_count`. */
  readonly field: string;
  readonly description: string;
}

interface ServiceErrorOptions {
  /** Not from ErrorOptions, which users who compile for ES2020 do not have. */
  readonly cause?: unknown;
  readonly violations?: readonly Violation[];
  /** Set only when the same call can succeed later. */
  readonly retryAfterMs?: number;
}

/**
 * An expected error, whose message the caller may read. Any other thrown value is a defect: the
 * caller gets "internal error" without details, and the log gets all of it.
 */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  readonly code: ErrorCode;
  readonly reason: ErrorReason;
  readonly violations: readonly Violation[];
  readonly retryAfterMs: number | undefined;

  constructor(
    code: ErrorCode,
    reason: ErrorReason,
    message: string,
    options: ServiceErrorOptions = {},
  ) {
    super(message, options);
    this.code = code;
    this.reason = reason;
    this.violations = options.violations?.slice(0, VIOLATIONS_MAX) ?? [];
    this.retryAfterMs = options.retryAfterMs;
  }

  static from(cause: unknown): ServiceError {
    return cause instanceof ServiceError
      ? cause
      : new ServiceError("internal", "INTERNAL", "internal error", { cause });
  }
}

/** The code of an error of the system or of a library, like `ENOENT`; "": it has none. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** The input is at fault; the message is the first violation, and the details are all of them. */
export function invalidArgument(violations: readonly Violation[]): ServiceError {
  const [first] = violations;
  const message = first === undefined ? "invalid request" : first.description;
  return new ServiceError("invalid_argument", "INVALID_REQUEST", message, { violations });
}

/** A setting, or an option of a command, is at fault. */
export function settingRefused(setting: string, why: string, cause?: unknown): ServiceError {
  return new ServiceError("invalid_argument", "INVALID_REQUEST", `${setting}: ${why}`, { cause });
}
