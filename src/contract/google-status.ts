/** Errors as google.rpc.Status: in the trailers of a call, and in a stream for one of its events. */
import { create } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "@session-ledger/proto/google/rpc/error_details_pb";
import { type Status, StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import type { ErrorCode, ServiceError, Violation } from "@session-ledger/base/errors";

const ERROR_DOMAIN = "session-ledger";

/**
 * Trailers must fit in 8 KiB, the default limit of gRPC clients in C (Python, Ruby, C#). The
 * message is in the trailers twice, once percent-encoded (at worst three bytes per byte), and the
 * details are base64: 3 × 512 + 4/3 × (512 + 3,584 + about 300 around them) is under 7,500.
 */
const MESSAGE_BYTES_MAX = 512;
const VIOLATIONS_BYTES_MAX = 3_584;
const FIELD_BYTES_MAX = 128;
const DESCRIPTION_BYTES_MAX = 512;
const ELLIPSIS_BYTES = 3;

/** The one place where our errors become google.rpc.Code. */
export const STATUS_CODES = {
  cancelled: 1,
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  already_exists: 6,
  permission_denied: 7,
  overloaded: 8, // RESOURCE_EXHAUSTED
  failed_precondition: 9,
  aborted: 10,
  out_of_range: 11,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  unauthenticated: 16,
} as const satisfies Record<ErrorCode, number>;

/** The part of an error that the caller gets. */
export function googleStatusOf(error: ServiceError): Status {
  const errorInfo = create(ErrorInfoSchema, { reason: error.reason, domain: ERROR_DOMAIN });
  const details = [anyPack(ErrorInfoSchema, errorInfo)];
  if (error.violations.length > 0) {
    const fieldViolations = boundedViolations(error.violations);
    details.push(anyPack(BadRequestSchema, create(BadRequestSchema, { fieldViolations })));
  }
  if (error.retryAfterMs !== undefined) {
    const retryDelay = durationFromMs(error.retryAfterMs);
    details.push(anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay })));
  }
  const message = cut(error.message, MESSAGE_BYTES_MAX);
  return create(StatusSchema, { code: STATUS_CODES[error.code], message, details });
}

/** The first violations, as many as the trailers have room for. */
function boundedViolations(violations: readonly Violation[]): Violation[] {
  const bounded: Violation[] = [];
  let bytes = 0;
  for (const violation of violations) {
    const field = cut(violation.field, FIELD_BYTES_MAX);
    const description = cut(violation.description, DESCRIPTION_BYTES_MAX);
    bytes += Buffer.byteLength(field) + Buffer.byteLength(description);
    if (bytes > VIOLATIONS_BYTES_MAX) break;
    bounded.push({ field, description });
  }
  return bounded;
}

const encoder = new TextEncoder();

/**
 * Cuts a text to at most `bytesMax` bytes of UTF-8. Half a surrogate pair, for example of a quoted
 * payload, becomes U+FFFD: encodeURI in grpc-js would throw.
 */
function cut(text: string, bytesMax: number): string {
  const whole = text.slice(0, bytesMax + 1).toWellFormed();
  const room = new Uint8Array(bytesMax);
  const { read } = encoder.encodeInto(whole, room);
  if (read === whole.length) return whole;
  const writtenChars = encoder.encodeInto(whole, room.subarray(ELLIPSIS_BYTES)).read;
  return `${whole.slice(0, writtenChars)}…`;
}
