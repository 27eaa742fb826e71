/**
 * The meaning of a failure for the writer, with pure functions.
 *
 *   again    it may pass: the same is sent again, later
 *   renew    the token was not accepted: the same at once, with a new one
 *   unary    the service has no stream for events
 *   refused  this record will never be accepted; the next may be
 *   fenced   another writer took over
 *   ended    the service will take nothing of this writer
 */
import type { RpcCode, RpcFailure } from "../failure.ts";

type StreamFate = "again" | "renew" | "unary" | "fenced" | "ended";
type RecordFate = "again" | "renew" | "refused" | "fenced" | "ended";

/** The number of replaced streams of one epoch in a row that proves another writer. */
export const REPLACED_MAX = 3;

/** How many times in a row this has happened, this time included. */
export interface InARow {
  readonly replaced: number;
  readonly unauthenticated: number;
}

/**
 * For a stream that ended. `epochGiven`: the caller chose the epoch, so another writer may use it
 * too.
 */
export function fateOfStream(
  failure: RpcFailure,
  { epochGiven, replaced, unauthenticated }: InARow & { readonly epochGiven: boolean },
): StreamFate {
  const { code, reason } = failure;
  if (code === "UNIMPLEMENTED") return "unary";
  // Our own earlier call may have reached the service after this one. No other writer is told the
  // epoch that the service gave us, so only repeated replacements prove a rival.
  if (reason === "STREAM_REPLACED")
    return epochGiven || replaced >= REPLACED_MAX ? "fenced" : "again";
  if (code === "UNAUTHENTICATED") return unauthenticated > 1 ? "again" : "renew";
  return fateOfWriter(failure) ?? "again";
}

const REFUSED_CODES: ReadonlySet<RpcCode> = new Set(["ALREADY_EXISTS", "OUT_OF_RANGE"]);

/** For a unary push. */
export function fateOfRecord(
  failure: RpcFailure,
  { unauthenticated, stream }: InARow & { readonly stream: "events" | "messages" },
): RecordFate {
  const { code, violations } = failure;
  // A runner's token may push every type of message except that of the user; events, all or none.
  if (code === "PERMISSION_DENIED" && stream === "messages") return "refused";
  if (code === "INVALID_ARGUMENT")
    return violations.some(({ field }) => field === "session_id") ? "ended" : "refused";
  if (REFUSED_CODES.has(code) || isTooLarge(failure)) return "refused";
  if (code === "UNAUTHENTICATED") return unauthenticated > 1 ? "again" : "renew";
  return fateOfWriter(failure) ?? "again";
}

/** UNKNOWN and INTERNAL are absent: proxies and resets of HTTP/2 cause them, and they pass. */
const ENDING_CODES: ReadonlySet<RpcCode> = new Set([
  "NOT_FOUND",
  "PERMISSION_DENIED",
  "FAILED_PRECONDITION",
  "INVALID_ARGUMENT",
  "UNIMPLEMENTED",
]);

/**
 * Failures that concern the whole writer, and do not pass with time; undefined: the failure may
 * pass.
 */
function fateOfWriter({ code, reason }: RpcFailure): "fenced" | "ended" | undefined {
  if (reason === "STALE_EPOCH") return "fenced";
  return reason === "SESSION_FULL" || ENDING_CODES.has(code) ? "ended" : undefined;
}

/** The service's own limit of a payload, or the transport's limit of a message. */
function isTooLarge({ code, reason, retryAfterMs, message }: RpcFailure): boolean {
  if (code !== "RESOURCE_EXHAUSTED") return false;
  if (reason === "PAYLOAD_TOO_LARGE" || reason === "REQUEST_TOO_LARGE") return true;
  // gRPC servers of any language refuse a large message with RESOURCE_EXHAUSTED, without a reason.
  return reason === undefined && retryAfterMs === undefined && /larger than max/i.test(message);
}
