/**
 * What a failure means for whoever pushes. Pure.
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

/** Streams of one epoch that were replaced in a row before it is believed that somebody else is there. */
export const REPLACED_MAX = 3;

/** How often in a row this has happened, this time counted. */
export interface InARow {
  readonly replaced: number;
  readonly unauthenticated: number;
}

/** Of a stream that ended. `epochGiven`: the caller chose the epoch, so somebody else may have it too. */
export function fateOfStream(
  failure: RpcFailure,
  { epochGiven, replaced, unauthenticated }: InARow & { readonly epochGiven: boolean },
): StreamFate {
  const { code, reason } = failure;
  if (code === "UNIMPLEMENTED") return "unary";
  // Our own call of before may have reached the service after this one. Nobody else is told the epoch
  // that the service gave us, so only one that keeps being replaced has a rival.
  if (reason === "STREAM_REPLACED")
    return epochGiven || replaced >= REPLACED_MAX ? "fenced" : "again";
  if (code === "UNAUTHENTICATED") return unauthenticated > 1 ? "again" : "renew";
  return fateOfWriter(failure) ?? "again";
}

const REFUSED_CODES: ReadonlySet<RpcCode> = new Set(["ALREADY_EXISTS", "OUT_OF_RANGE"]);

/** Of a unary push. */
export function fateOfRecord(
  failure: RpcFailure,
  { unauthenticated, stream }: InARow & { readonly stream: "events" | "messages" },
): RecordFate {
  const { code, violations } = failure;
  // A runner's token may push every type of message but one, that of the user; events, all or none.
  if (code === "PERMISSION_DENIED" && stream === "messages") return "refused";
  if (code === "INVALID_ARGUMENT")
    return violations.some(({ field }) => field === "session_id") ? "ended" : "refused";
  if (REFUSED_CODES.has(code) || isTooLarge(failure)) return "refused";
  if (code === "UNAUTHENTICATED") return unauthenticated > 1 ? "again" : "renew";
  return fateOfWriter(failure) ?? "again";
}

/** UNKNOWN and INTERNAL are none of them: proxies and resets of HTTP/2 speak like that, and they pass. */
const ENDING_CODES: ReadonlySet<RpcCode> = new Set([
  "NOT_FOUND",
  "PERMISSION_DENIED",
  "FAILED_PRECONDITION",
  "INVALID_ARGUMENT",
  "UNIMPLEMENTED",
]);

/** What is not about one record, and does not pass by waiting; undefined: it may pass. */
function fateOfWriter({ code, reason }: RpcFailure): "fenced" | "ended" | undefined {
  if (reason === "STALE_EPOCH") return "fenced";
  return reason === "SESSION_FULL" || ENDING_CODES.has(code) ? "ended" : undefined;
}

/** The service's own limit on a payload, or that of the transport on a message. */
function isTooLarge({ code, reason, retryAfterMs, message }: RpcFailure): boolean {
  if (code !== "RESOURCE_EXHAUSTED") return false;
  if (reason === "PAYLOAD_TOO_LARGE" || reason === "REQUEST_TOO_LARGE") return true;
  // grpc servers of any language refuse a large message by RESOURCE_EXHAUSTED, with no reason.
  return reason === undefined && retryAfterMs === undefined && /larger than max/i.test(message);
}
