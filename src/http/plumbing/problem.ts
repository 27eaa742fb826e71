/**
 * Our errors in the form of RFC 9457. `type` is always `about:blank`: the status gives the kind of
 * problem, and `reason`, the same word that gRPC callers get, gives the exact one.
 */
import { STATUS_CODES } from "node:http";
import {
  type ErrorCode,
  type ErrorReason,
  ServiceError,
  type Violation,
} from "../../base/errors.ts";

export const PROBLEM_TYPE = "application/problem+json";

export interface Problem {
  readonly type: "about:blank";
  readonly title: string;
  readonly status: number;
  /** Absent for a defect. */
  readonly detail: string | undefined;
  readonly reason: ErrorReason;
  readonly violations: readonly Violation[] | undefined;
}

/** A refusal that only HTTP has: its status differs from the usual status of its code. */
export class HttpRefusal extends ServiceError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    message: string,
    options: {
      readonly code?: ErrorCode;
      readonly reason?: ErrorReason;
      readonly headers?: Readonly<Record<string, string>>;
      readonly violations?: readonly Violation[];
      readonly cause?: unknown;
    } = {},
  ) {
    const {
      code = "invalid_argument",
      reason = "INVALID_REQUEST",
      headers = {},
      ...rest
    } = options;
    super(code, reason, message, rest);
    this.status = status;
    this.headers = headers;
  }
}

/**
 * The caller left, so no one reads this status. It is for logs and metrics, with nginx's number.
 */
export const CLIENT_CLOSED_REQUEST = 499;

/** The one place where our error codes become HTTP statuses. */
export const HTTP_STATUS = {
  cancelled: CLIENT_CLOSED_REQUEST,
  invalid_argument: 400,
  out_of_range: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  already_exists: 409,
  failed_precondition: 409,
  aborted: 409,
  overloaded: 429,
  internal: 500,
  unimplemented: 501,
  unavailable: 503,
  deadline_exceeded: 504,
} as const satisfies Record<ErrorCode, number>;

/**
 * `overloaded` also covers objects that are too large, and those have a status of their own. 413 is
 * for requests that are too large. A transcript is too large for every caller, so its status must
 * not make clients retry, as 429 and 5xx do.
 */
const STATUS_OF_REASON: Partial<Record<ErrorReason, number>> = {
  PAYLOAD_TOO_LARGE: 413,
  REQUEST_TOO_LARGE: 413,
  TRANSCRIPT_TOO_LARGE: 422,
};

const VIOLATIONS_MAX = 16;

/** The names that HTTP callers use for the contract's fields, where those differ. */
export type FieldNames = Readonly<Record<string, string>>;

const FIELD_NAMES: FieldNames = {
  session_id: "id",
  page_size: "limit",
  event_types: "event_type",
  idempotency_key: "Idempotency-Key",
};

export function statusOf(error: ServiceError): number {
  if (error instanceof HttpRefusal) return error.status;
  return STATUS_OF_REASON[error.reason] ?? HTTP_STATUS[error.code];
}

/** The part of an error that the caller may read. */
export function problemOf(error: ServiceError, names = FIELD_NAMES): Problem {
  const status = statusOf(error);
  const violations = error.violations.slice(0, VIOLATIONS_MAX).map(({ field, description }) => ({
    field: renamed(field, names),
    description: renamed(description, names),
  }));
  return {
    type: "about:blank",
    title: STATUS_CODES[status] ?? "Client Closed Request",
    status,
    detail: error.code === "internal" ? undefined : renamed(error.message, names),
    reason: error.reason,
    violations: violations.length === 0 ? undefined : violations,
  };
}

/** The headers of the answer. */
export function problemHeaders(error: ServiceError): Readonly<Record<string, string>> {
  const headers = {
    ...(error instanceof HttpRefusal ? error.headers : {}),
    ...(error.code === "unauthenticated" ? { "www-authenticate": "Bearer" } : {}),
  };
  if (error.retryAfterMs === undefined) return headers;
  return { ...headers, "retry-after": String(Math.ceil(error.retryAfterMs / 1_000)) };
}

/**
 * Descriptions begin with the name of their field; an index or a path after the name stays
 * unchanged.
 */
function renamed(text: string, names: FieldNames): string {
  const name = /^[a-z_]+/.exec(text)?.[0] ?? "";
  const known = Object.hasOwn(names, name) ? names[name] : undefined;
  return known === undefined ? text : known + text.slice(name.length);
}
