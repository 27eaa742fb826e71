import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import { Metadata, type StatusObject, status } from "@grpc/grpc-js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import type { ErrorCode, ServiceError, Violation } from "../base/errors.ts";

const ERROR_DOMAIN = "session-ledger";
const STATUS_DETAILS_HEADER = "grpc-status-details-bin";

/**
 * Trailers must fit in 8 KiB, what gRPC clients in C (Python, Ruby, C#) take by default. The message
 * is in there twice, once percent-encoded (three bytes for one at worst), and the details are base64:
 * 3 × 512 + 4/3 × (512 + 3,584 + some 300 around them) is under 7,500.
 */
const MESSAGE_BYTES_MAX = 512;
const VIOLATIONS_BYTES_MAX = 3_584;
const VIOLATIONS_MAX = 16;
const FIELD_BYTES_MAX = 128;
const DESCRIPTION_BYTES_MAX = 512;
const ELLIPSIS_BYTES = 3;

/** The one place where our errors become gRPC's. */
export const GRPC_STATUS = {
  cancelled: status.CANCELLED,
  invalid_argument: status.INVALID_ARGUMENT,
  not_found: status.NOT_FOUND,
  already_exists: status.ALREADY_EXISTS,
  failed_precondition: status.FAILED_PRECONDITION,
  aborted: status.ABORTED,
  out_of_range: status.OUT_OF_RANGE,
  deadline_exceeded: status.DEADLINE_EXCEEDED,
  unimplemented: status.UNIMPLEMENTED,
  unauthenticated: status.UNAUTHENTICATED,
  permission_denied: status.PERMISSION_DENIED,
  overloaded: status.RESOURCE_EXHAUSTED,
  unavailable: status.UNAVAILABLE,
  internal: status.INTERNAL,
} as const satisfies Record<ErrorCode, status>;

/** What the caller gets to read of an error: its status, and google.rpc details in the trailers. */
export function statusOf(error: ServiceError): StatusObject {
  const code = GRPC_STATUS[error.code];
  const message = cut(error.message, MESSAGE_BYTES_MAX);
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
  const metadata = new Metadata();
  const bytes = toBinary(StatusSchema, create(StatusSchema, { code, message, details }));
  metadata.set(STATUS_DETAILS_HEADER, Buffer.from(bytes));
  return { code, details: message, metadata };
}

/** The first ones, as many as the trailers have room for. */
function boundedViolations(violations: readonly Violation[]): Violation[] {
  const bounded: Violation[] = [];
  let bytes = 0;
  for (const violation of violations.slice(0, VIOLATIONS_MAX)) {
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
 * Text of at most so many bytes of UTF-8. Half a surrogate pair, which a description may have from a
 * payload it quotes, becomes U+FFFD: grpc-js percent-encodes the message with encodeURI, which throws.
 */
function cut(text: string, bytesMax: number): string {
  const whole = text.slice(0, bytesMax + 1).toWellFormed();
  const room = new Uint8Array(bytesMax);
  const { read } = encoder.encodeInto(whole, room);
  if (read === whole.length) return whole;
  const kept = encoder.encodeInto(whole, room.subarray(ELLIPSIS_BYTES)).read;
  return `${whole.slice(0, kept)}…`;
}
