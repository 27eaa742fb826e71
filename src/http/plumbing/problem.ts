/**
 * Our errors in the form of RFC 9457. `type` is always `about:blank`: the status gives the kind,
 * and `reason`, as in gRPC, the exact problem.
 */
import { STATUS_CODES } from "node:http";
import type { z } from "zod";
import { nearest } from "@session-ledger/base/nearest";
import { withNames } from "../../contract/checks.ts";
import {
  type ErrorCode,
  type ErrorReason,
  invalidArgument,
  ServiceError,
  type Violation,
} from "@session-ledger/base/errors";

export const PROBLEM_TYPE = "application/problem+json";

interface Refusal {
  readonly code?: ErrorCode;
  readonly reason?: ErrorReason;
  readonly headers?: Readonly<Record<string, string>>;
  readonly violations?: readonly Violation[];
}

/** A refusal that only HTTP has: its status differs from the usual status of its code. */
export class HttpRefusal extends ServiceError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    message: string,
    { code = "invalid_argument", reason = "INVALID_REQUEST", headers = {}, ...rest }: Refusal = {},
  ) {
    super(code, reason, message, rest);
    this.status = status;
    this.headers = headers;
  }
}

export function nothingHere(): HttpRefusal {
  return new HttpRefusal(404, "nothing exists at this path", { code: "not_found" });
}

/** The refusal of a header; the description begins with its name. */
export function fieldRefusal(
  status: number,
  field: string,
  description: string,
  headers: Readonly<Record<string, string>> = {},
): HttpRefusal {
  return new HttpRefusal(status, description, { headers, violations: [{ field, description }] });
}

export function notJsonType(description: string): HttpRefusal {
  return fieldRefusal(415, "Content-Type", description, { accept: "application/json" });
}

/** Nobody reads this status; it is nginx's number, for logs and metrics. */
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
 * Of `overloaded`: 413 for requests that are too large; a transcript is too large for every caller,
 * so its status must not make clients retry, as 429 and 5xx do.
 */
const STATUS_OF_REASON: Partial<Record<ErrorReason, number>> = {
  PAYLOAD_TOO_LARGE: 413,
  REQUEST_TOO_LARGE: 413,
  TRANSCRIPT_TOO_LARGE: 422,
};

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
export function problemOf(error: ServiceError, names = FIELD_NAMES) {
  const status = statusOf(error);
  const violations = error.violations.map(({ field, description }) => ({
    field: renamed(field, names),
    description: renamed(description, names),
  }));
  return {
    type: "about:blank",
    title: STATUS_CODES[status] ?? "Client Closed Request",
    status,
    // A defect has no detail.
    detail: error.code === "internal" ? undefined : renamed(error.message, names),
    reason: error.reason,
    violations: violations.length === 0 ? undefined : violations,
  };
}

/** The answer of a handler; an error has the names that its fields have in the request. */
export function naming<T>(names: FieldNames, answer: Promise<T>): Promise<T> {
  return answer.catch((error: unknown) => {
    throw withNames(ServiceError.from(error), (text) => renamed(text, names));
  });
}

export function problemHeaders(error: ServiceError): Readonly<Record<string, string>> {
  const headers = {
    ...(error instanceof HttpRefusal ? error.headers : {}),
    ...(error.code === "unauthenticated" ? { "www-authenticate": "Bearer" } : {}),
  };
  if (error.retryAfterMs === undefined) return headers;
  return { ...headers, "retry-after": String(Math.ceil(error.retryAfterMs / 1_000)) };
}

/** Descriptions begin with the name of their field; a path after the name stays unchanged. */
function renamed(text: string, names: FieldNames): string {
  const name = /^[a-z_]+/.exec(text)?.[0] ?? "";
  const parameter = Object.hasOwn(names, name) ? names[name] : undefined;
  return parameter === undefined ? text : parameter + text.slice(name.length);
}

const BY_CODE: Readonly<Record<string, () => HttpRefusal>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () => notJsonType("Content-Type must be application/json"),
  FST_ERR_BAD_URL: () => new HttpRefusal(400, "the path is not URL-encoded UTF-8"),
  FST_ERR_MAX_PARAM_LENGTH: () => new HttpRefusal(414, "the path is too long"),
  // The connection closed while the body was read.
  ECONNRESET: () =>
    new HttpRefusal(400, "the caller left", { code: "cancelled", reason: "CANCELLED" }),
};

/** Turns an error of the framework into an error that the caller may read. */
export function refusalOf(cause: unknown): ServiceError {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  const refusal = typeof code === "string" ? BY_CODE[code] : undefined;
  return refusal === undefined ? ServiceError.from(cause) : refusal();
}

/** Names that other APIs have for the same parameter. */
const SYNONYMS: readonly (readonly string[])[] = [
  ["size", "limit", "page_size", "per_page", "count", "max"],
  ["after_seq", "after", "cursor", "since", "from", "offset"],
  ["before_seq", "before", "until"],
  ["query", "q", "search", "filter"],
  ["order_by", "sort", "sort_by", "order"],
];

/** The parameter that an unknown one was probably meant to be. */
function meantBy(given: string, parameters: readonly string[]): string | undefined {
  const name = given
    .replaceAll(/(?<=[a-z])[A-Z]/g, "_$&")
    .replaceAll("-", "_")
    .toLowerCase();
  const same = SYNONYMS.find((names) => names.includes(name)) ?? [name];
  return parameters.find((one) => same.includes(one)) ?? nearest(name, parameters);
}

/** Zod's issues by the names of the parameters; each unknown parameter is named separately. */
export function refusalOfIssues(
  issues: readonly z.core.$ZodIssue[],
  parameters: readonly string[] = [],
): ServiceError {
  const violations = issues.flatMap((issue) => {
    const field = issue.path.join(".");
    if (issue.code !== "unrecognized_keys") {
      return [{ field, description: descriptionOf(field, issue.message) }];
    }
    return issue.keys.map((key) => {
      const path = field === "" ? key : `${field}.${key}`;
      const meant = field === "" ? meantBy(key, parameters) : undefined;
      const hint = meant === undefined ? "" : `; did you mean ${meant}?`;
      return { field: path, description: `${path} is not known here${hint}` };
    });
  });
  return invalidArgument(violations);
}

/** Our own messages continue after the name; Zod's are whole sentences. */
function descriptionOf(field: string, message: string): string {
  const name = field === "" ? "the body" : field;
  return /^(?:must|is) /.test(message) ? `${name} ${message}` : `${name}: ${message}`;
}
